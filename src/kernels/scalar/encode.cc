// The specification of encoding is the codec's own: tiles, their scales, their means.
#include "codec/tile.h"
#include "kernels/scalar/kernels.h"

namespace turboquant::scalar {

void EncodeF32(const EncodeArgs& args) { EncodeTile(args); }
void EncodeF16(const EncodeArgs& args) { EncodeTile(args); }
void EncodeBf16(const EncodeArgs& args) { EncodeTile(args); }
void EncodeInt8(const EncodeArgs& args) { EncodeTile(args); }
void EncodeFp8E4m3(const EncodeArgs& args) { EncodeTile(args); }
void EncodeFp8E5m2(const EncodeArgs& args) { EncodeTile(args); }
void EncodeNarrow(const EncodeArgs& args) { EncodeTile(args); }
void EncodeInt4Sym(const EncodeArgs& args) { EncodeTile(args); }
void EncodeInt4Asym(const EncodeArgs& args) { EncodeTile(args); }

void FitScales(const FitScalesArgs& args) { turboquant::FitScales(args); }
void ExpandScales(const ExpandScalesArgs& args) { turboquant::ExpandScales(args); }
void MeanDot(const MeanDotArgs& args) { turboquant::MeanDot(args); }

}  // namespace turboquant::scalar
