#define TQ_FOLDER neoni8mm

#include "kernels/neonint/prepare_q.h"

#include "kernels/neoni8mm/kernels.h"

namespace turboquant::neoni8mm {

void PrepareQInt8(const PrepareQArgs& args) { Prepare<2>(args, kMaxQCode); }
void PrepareQNarrow(const PrepareQArgs& args) { Prepare<1>(args, kMaxNarrowQCode); }
void PrepareQInt4Sym(const PrepareQArgs& args) { Prepare<2>(args, kMaxQCode); }
void PrepareQInt4Asym(const PrepareQArgs& args) { Prepare<2>(args, kMaxQCode); }

}  // namespace turboquant::neoni8mm
