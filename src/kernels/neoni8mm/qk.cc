#define TQ_FOLDER neoni8mm

#include "kernels/neonint/qk.h"
#include "kernels/neoni8mm/kernels.h"
#include "kernels/neoni8mm/matrix_products.h"
#include "kernels/neonint/narrow.h"

namespace turboquant::neoni8mm {
namespace {

using enum KvCacheDtype;

template <typename Format>
void Run(const QkArgs& args) {
  Qk<MatrixProducts, Format>(args);
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

}  // namespace turboquant::neoni8mm
