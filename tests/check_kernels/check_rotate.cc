// Every row equals the codec's rotation bit for bit.
#include <fmt/format.h>

#include <cmath>
#include <vector>

#include "check.h"
#include "codec/rotation.h"

namespace turboquant::check {

void CheckRotate(RowCheck& check) {
  constexpr size_t kMaxFloats = size_t{4} * kMaxRotationChannels;
  GuardedBuffer in_buffer(kMaxFloats * 4 + 64), out_buffer(kMaxFloats * 4 + 64);
  for (int head_dim = 16; head_dim <= kMaxRotationChannels; head_dim += 16) {
    for (const bool inverse : {false, true}) {
      for (const int num_rows : {1, 3}) {
        if (!check.Begin(fmt::format("head_dim {} rows {} {}", head_dim, num_rows,
                                     inverse ? "inverse" : "forward")))
          continue;
        Rng rng(check.case_seed());
        const size_t count = static_cast<size_t>(num_rows) * static_cast<size_t>(head_dim);
        float* in = in_buffer.PlaceArray<float>(count, 0);
        float* out = out_buffer.PlaceArray<float>(count, 0);
        for (size_t i = 0; i < count; ++i) {
          in[i] = static_cast<float>((rng.Uniform() * 2 - 1) * (rng.Below(16) == 0 ? 50 : 1));
        }
        const bool in_place = rng.Below(2) == 0;
        std::vector<float> expected(count);
        RotateArgs args = {.in = in,
                           .in_stride = static_cast<size_t>(head_dim),
                           .out = expected.data(),
                           .out_stride = static_cast<size_t>(head_dim),
                           .num_rows = num_rows,
                           .head_dim = head_dim,
                           .inverse = inverse};
        Rotate(args);
        args.out = in_place ? in : out;
        check.row().rotate(args);
        if (!check.ExpectGuards(out_buffer, "out") || !check.ExpectGuards(in_buffer, "in")) return;
        if (!check.ExpectBytes(args.out, expected.data(), count * sizeof(float), "rows")) return;
      }
    }
  }
}

}  // namespace turboquant::check
