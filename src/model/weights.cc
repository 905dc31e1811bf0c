#include "model/weights.h"

#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "base/check.h"
#include "model/ggml_support.h"
#include "model/matmul_node.h"
#include "model/repack_rule.h"

namespace turboquant {
namespace {

enum class Placement : uint8_t {
  kMapped,    // stays in the file's pages
  kF32,       // converted
  kRepacked,  // in the row order of ggml's repacked kernels; rows cannot be read back
};

constexpr std::array kAllPlacements = {Placement::kMapped, Placement::kF32, Placement::kRepacked};

struct PlannedTensor {
  const GgufTensor* source;
  Placement placement;
  bool is_rows = false;  // looked up by row rather than multiplied with
};

Placement PlaceMatrix(const GgufTensor& tensor, WeightMode mode) {
  const auto type = static_cast<ggml_type>(tensor.ggml_type);
  CHECK(ggml_get_type_traits_cpu(type)->vec_dot != nullptr);  // CheckTensors refuses others
  if (type == GGML_TYPE_F32) return Placement::kMapped;
  if (mode == WeightMode::kDequantized) return Placement::kF32;
  return !CanMultiply(HostMatmul(), type, static_cast<int64_t>(tensor.shape[0]),
                      static_cast<int64_t>(tensor.shape[1])) &&
                 RepackIsFaster(type, static_cast<int64_t>(tensor.shape[0]),
                                static_cast<int64_t>(tensor.shape[1]))
             ? Placement::kRepacked
             : Placement::kMapped;
}

Placement PlaceRows(const GgufTensor& tensor, WeightMode mode) {
  const Placement placement = PlaceMatrix(tensor, mode);
  return placement == Placement::kRepacked ? Placement::kMapped : placement;
}

std::vector<PlannedTensor> Plan(const Gguf& gguf, std::span<const TensorSpec> specs,
                                WeightMode mode) {
  std::vector<PlannedTensor> plan;
  const bool tied = gguf.FindTensor(kOutput) == nullptr;
  for (const TensorSpec& spec : specs) {
    const GgufTensor* tensor = gguf.FindTensor(spec.name);
    if (tensor == nullptr) continue;
    if (spec.shape.size() == 1) {
      plan.push_back(
          {tensor, tensor->ggml_type == GGML_TYPE_F32 ? Placement::kMapped : Placement::kF32});
      continue;
    }
    if (spec.name == kTokenEmbedding)
      plan.push_back({tensor, PlaceRows(*tensor, mode), /*is_rows=*/true});
    if (spec.name != kTokenEmbedding || tied) plan.push_back({tensor, PlaceMatrix(*tensor, mode)});
  }
  return plan;
}

// Gives whole pages of a converted tensor back; the file still has them.
void DropPages(std::span<const uint8_t> bytes) {
  const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const auto begin = (reinterpret_cast<uintptr_t>(bytes.data()) + page - 1) / page * page;
  const auto end = (reinterpret_cast<uintptr_t>(bytes.data()) + bytes.size()) / page * page;
  if (begin < end) madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
}

void ConvertToF32(const GgufTensor& source, std::span<const uint8_t> bytes, float* out) {
  const auto type = static_cast<ggml_type>(source.ggml_type);
  const auto row_values = static_cast<int64_t>(source.shape[0]);
  const size_t row_bytes = ggml_row_size(type, row_values);
  const ggml_to_float_t to_float = ggml_get_type_traits(type)->to_float;
  for (size_t offset = 0; offset < bytes.size(); offset += row_bytes, out += row_values) {
    to_float(bytes.data() + offset, out, row_values);
  }
}

}  // namespace

struct ModelWeights::Impl {
  using Group = std::vector<std::pair<PlannedTensor, ggml_tensor*>>;

  std::optional<MappedFile> file;  // none where the weights are only described
  GgmlContextPtr context;          // descriptions of all tensors
  std::vector<GgmlBufferPtr> buffers;
  std::unordered_map<std::string, ggml_tensor*> tensors, row_tensors;
  Group groups[3];  // by placement
  WeightBytes bytes;

  Impl(const Gguf& gguf, std::span<const TensorSpec> specs, WeightMode mode);
  ggml_tensor* AddTensor(const PlannedTensor& planned);
  Status Allocate(const Group& group, Placement placement);
  void DescribeGroup(const Group& group, Placement placement);
  std::span<const uint8_t> BytesOf(const GgufTensor& tensor) const {
    return file->bytes().subspan(tensor.offset, tensor.bytes);
  }
};

namespace {

ggml_backend_buffer_type_t BufferTypeOf(Placement placement) {
  return placement == Placement::kRepacked ? RepackBufferType() : ggml_backend_cpu_buffer_type();
}

// Bytes of the buffer that a group is allocated in; mapped ones have none.
size_t AllocatedBytes(const ModelWeights::Impl::Group& group, Placement placement) {
  const ggml_backend_buffer_type_t type = BufferTypeOf(placement);
  const size_t alignment = ggml_backend_buft_get_alignment(type);
  size_t size = 0;
  for (const auto& [planned, tensor] : group)
    size += GGML_PAD(ggml_backend_buft_get_alloc_size(type, tensor), alignment);
  return size;
}

WeightBytes BytesOfGroups(std::span<const ModelWeights::Impl::Group, 3> groups) {
  WeightBytes bytes;
  std::unordered_set<const GgufTensor*> mapped;  // an embedding that is the output too comes twice
  for (const auto& [planned, tensor] : groups[static_cast<size_t>(Placement::kMapped)]) {
    if (mapped.insert(planned.source).second) bytes.mapped += planned.source->bytes;
  }
  bytes.converted = AllocatedBytes(groups[static_cast<size_t>(Placement::kF32)], Placement::kF32);
  bytes.repacked =
      AllocatedBytes(groups[static_cast<size_t>(Placement::kRepacked)], Placement::kRepacked);
  return bytes;
}

}  // namespace

ModelWeights::Impl::Impl(const Gguf& gguf, std::span<const TensorSpec> specs, WeightMode mode) {
  const std::vector<PlannedTensor> plan = Plan(gguf, specs, mode);
  context = NewGgmlContext(plan.size());
  for (const PlannedTensor& planned : plan) {
    groups[static_cast<size_t>(planned.placement)].emplace_back(planned, AddTensor(planned));
  }
  bytes = BytesOfGroups(groups);
}

ggml_tensor* ModelWeights::Impl::AddTensor(const PlannedTensor& planned) {
  const GgufTensor& source = *planned.source;
  const ggml_type type = planned.placement == Placement::kF32
                             ? GGML_TYPE_F32
                             : static_cast<ggml_type>(source.ggml_type);
  const std::vector<int64_t> shape(source.shape.begin(), source.shape.end());
  ggml_tensor* tensor =
      ggml_new_tensor(context.get(), type, static_cast<int>(shape.size()), shape.data());
  const std::string name(source.name);
  ggml_set_name(tensor, name.c_str());
  (planned.is_rows ? row_tensors : tensors)[name] = tensor;
  return tensor;
}

// One buffer for all tensors of a placement.
Status ModelWeights::Impl::Allocate(const Group& group, Placement placement) {
  if (placement == Placement::kMapped) {
    void* map = const_cast<uint8_t*>(file->bytes().data());
    buffers.emplace_back(ggml_backend_cpu_buffer_from_ptr(map, file->bytes().size()));
    for (const auto& [planned, tensor] : group) {
      const auto status = ggml_backend_tensor_alloc(
          buffers.back().get(), tensor, const_cast<uint8_t*>(BytesOf(*planned.source).data()));
      CHECK_EQ(status, GGML_STATUS_SUCCESS);
    }
    return {};
  }
  const size_t size = AllocatedBytes(group, placement);
  buffers.emplace_back(ggml_backend_buft_alloc_buffer(BufferTypeOf(placement), size));
  if (buffers.back() == nullptr) {
    return Fail(ErrorCode::kOutOfMemory, "{}: no memory for {} bytes of converted weights",
                file->path(), size);
  }
  ggml_tallocr allocator = ggml_tallocr_new(buffers.back().get());
  for (const auto& [planned, tensor] : group) {
    CHECK_EQ(ggml_tallocr_alloc(&allocator, tensor), GGML_STATUS_SUCCESS);
    const std::span<const uint8_t> source = BytesOf(*planned.source);
    if (placement == Placement::kF32) {
      ConvertToF32(*planned.source, source, static_cast<float*>(tensor->data));
    } else {
      ggml_backend_tensor_set(tensor, source.data(), 0, source.size());
    }
    DropPages(source);
  }
  return {};
}

// Places that nothing may read. Repacked tensors get a small buffer of their type, because the
// scratch of a product over them depends on it.
void ModelWeights::Impl::DescribeGroup(const Group& group, Placement placement) {
  if (placement == Placement::kRepacked)
    buffers.emplace_back(ggml_backend_buft_alloc_buffer(BufferTypeOf(placement), 64));
  for (const auto& [planned, tensor] : group) {
    tensor->data = tensor;  // any address: tells ggml's allocator that it has a place
    if (placement != Placement::kRepacked) continue;
    tensor->buffer = buffers.back().get();
    CHECK_EQ(ggml_backend_buffer_init_tensor(tensor->buffer, tensor), GGML_STATUS_SUCCESS);
  }
}

ModelWeights::ModelWeights(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
ModelWeights::~ModelWeights() = default;

Result<std::unique_ptr<ModelWeights>> ModelWeights::Load(Source source) {
  InitGgml();
  auto impl = std::make_unique<Impl>(*source.gguf, source.specs, source.mode);
  impl->file = std::move(source.file);
  for (const Placement placement : kAllPlacements) {
    const Impl::Group& group = impl->groups[static_cast<size_t>(placement)];
    if (!group.empty()) TQ_RETURN_IF_ERROR(impl->Allocate(group, placement));
  }
  for (Impl::Group& group : impl->groups) group.clear();  // they point into the caller's Gguf
  return std::unique_ptr<ModelWeights>(new ModelWeights(std::move(impl)));
}

std::unique_ptr<ModelWeights> ModelWeights::Describe(const Gguf& gguf,
                                                     std::span<const TensorSpec> specs,
                                                     WeightMode mode) {
  InitGgml();
  auto impl = std::make_unique<Impl>(gguf, specs, mode);
  for (const Placement placement : kAllPlacements) {
    const Impl::Group& group = impl->groups[static_cast<size_t>(placement)];
    if (!group.empty()) impl->DescribeGroup(group, placement);
  }
  for (Impl::Group& group : impl->groups) group.clear();
  return std::unique_ptr<ModelWeights>(new ModelWeights(std::move(impl)));
}

ggml_tensor* ModelWeights::Find(std::string_view name) const {
  const auto it = impl_->tensors.find(std::string(name));
  return it == impl_->tensors.end() ? nullptr : it->second;
}

ggml_tensor* ModelWeights::FindRows(std::string_view name) const {
  const auto it = impl_->row_tensors.find(std::string(name));
  return it == impl_->row_tensors.end() ? nullptr : it->second;
}

const WeightBytes& ModelWeights::bytes() const { return impl_->bytes; }

}  // namespace turboquant
