#define TQ_FOLDER neoni8mm

#include "kernels/neonint/pv.h"
#include "kernels/neoni8mm/kernels.h"
#include "kernels/neoni8mm/matrix_products.h"
#include "kernels/neonint/narrow.h"

namespace turboquant::neoni8mm {
namespace {

using enum KvCacheDtype;

template <typename Format>
void Run(const PvArgs& args) {
  Pv<MatrixProducts, Format>(args);
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

}  // namespace turboquant::neoni8mm
