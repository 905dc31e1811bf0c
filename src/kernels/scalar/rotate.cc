// The specification of the rotation is the codec's own.
#include "codec/rotation.h"
#include "kernels/scalar/kernels.h"

namespace turboquant::scalar {

void Rotate(const RotateArgs& args) { turboquant::Rotate(args); }

}  // namespace turboquant::scalar
