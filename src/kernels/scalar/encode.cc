// The specification of encoding is the codec's own EncodeTile.
#include "codec/tile.h"
#include "kernels/scalar/kernels.h"

namespace turboquant::scalar {

void EncodeF32(const EncodeArgs& args) { EncodeTile(args); }
void EncodeF16(const EncodeArgs& args) { EncodeTile(args); }
void EncodeBf16(const EncodeArgs& args) { EncodeTile(args); }
void EncodeInt8(const EncodeArgs& args) { EncodeTile(args); }
void EncodeFp8E4m3(const EncodeArgs& args) { EncodeTile(args); }
void EncodeFp8E5m2(const EncodeArgs& args) { EncodeTile(args); }
void EncodeInt4(const EncodeArgs& args) { EncodeTile(args); }
void EncodeInt4Asym(const EncodeArgs& args) { EncodeTile(args); }

}  // namespace turboquant::scalar
