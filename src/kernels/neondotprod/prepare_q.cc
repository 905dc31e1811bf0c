#define TQ_FOLDER neondotprod

#include "kernels/neonint/prepare_q.h"

#include "kernels/neondotprod/kernels.h"

namespace turboquant::neondotprod {

void PrepareQInt8(const PrepareQArgs& args) { Prepare<2>(args, kMaxQCode); }
void PrepareQNarrow(const PrepareQArgs& args) { Prepare<1>(args, kMaxNarrowQCode); }
void PrepareQInt4Sym(const PrepareQArgs& args) { Prepare<2>(args, kMaxQCode); }
void PrepareQInt4Asym(const PrepareQArgs& args) { Prepare<2>(args, kMaxQCode); }

}  // namespace turboquant::neondotprod
