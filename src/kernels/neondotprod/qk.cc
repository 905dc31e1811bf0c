#define TQ_FOLDER neondotprod

#include "kernels/neonint/qk.h"
#include "kernels/neondotprod/kernels.h"
#include "kernels/neonint/dot_products.h"
#include "kernels/neonint/narrow.h"

namespace turboquant::neondotprod {
namespace {

using enum KvCacheDtype;

template <typename Format>
void Run(const QkArgs& args) {
  Qk<DotProducts, Format>(args);
}

}  // namespace

void QkInt8(const QkArgs& args) { Run<Int8Lines<true>>(args); }
void QkInt6(const QkArgs& args) { Run<NarrowLines<kInt6, true>>(args); }
void QkInt5(const QkArgs& args) { Run<NarrowLines<kInt5, true>>(args); }
void QkInt4(const QkArgs& args) { Run<NarrowLines<kInt4, true>>(args); }
void QkInt3(const QkArgs& args) { Run<NarrowLines<kInt3, true>>(args); }
void QkInt2(const QkArgs& args) { Run<NarrowLines<kInt2, true>>(args); }
void QkInt4Sym(const QkArgs& args) { Run<NibbleLines<true, false>>(args); }
void QkInt4Asym(const QkArgs& args) { Run<NibbleLines<true, true>>(args); }

}  // namespace turboquant::neondotprod
