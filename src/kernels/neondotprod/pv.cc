#define TQ_FOLDER neondotprod

#include "kernels/neonint/pv.h"
#include "kernels/neondotprod/kernels.h"
#include "kernels/neonint/dot_products.h"
#include "kernels/neonint/narrow.h"

namespace turboquant::neondotprod {
namespace {

using enum KvCacheDtype;

template <typename Format>
void Run(const PvArgs& args) {
  Pv<DotProducts, Format>(args);
}

}  // namespace

void PvInt8(const PvArgs& args) { Run<Int8Lines<false>>(args); }
void PvInt6(const PvArgs& args) { Run<NarrowLines<kInt6, false>>(args); }
void PvInt5(const PvArgs& args) { Run<NarrowLines<kInt5, false>>(args); }
void PvInt4(const PvArgs& args) { Run<NarrowLines<kInt4, false>>(args); }
void PvInt3(const PvArgs& args) { Run<NarrowLines<kInt3, false>>(args); }
void PvInt2(const PvArgs& args) { Run<NarrowLines<kInt2, false>>(args); }
void PvInt4Sym(const PvArgs& args) { Run<NibbleLines<false, false>>(args); }
void PvInt4Asym(const PvArgs& args) { Run<NibbleLines<false, true>>(args); }

}  // namespace turboquant::neondotprod
