// turboquant convert: scales of a KV cache between our calibration table and the files of other
// engines.
#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/json_text.h"
#include "base/printable_text.h"
#include "calibration/calibration_table.h"
#include "calibration/scale_conversion.h"
#include "calibration/scale_layout.h"
#include "cli/console.h"
#include "cli/verbs.h"
#include "model/fingerprint.h"

namespace turboquant::cli {
namespace {

struct ConvertFlags {
  std::string from, from_layout = "auto";
  std::string to_layout, output;
  std::string model;  // empty = none: nothing is bound to the default model unasked
  std::string model_type;
  int tensor_parallel_size = 0;  // 0 = not given
  bool json = false;
};

std::vector<std::string> LayoutNames() {
  std::vector<std::string> names;
  for (const ScaleLayout layout : kAllScaleLayouts) names.emplace_back(Name(layout));
  return names;
}

Status CheckFlags(const ConvertFlags& flags, ScaleLayout to) {
  if (flags.tensor_parallel_size > 0 && to != ScaleLayout::kKvCacheScales) {
    return Fail(ErrorCode::kInvalidArgument,
                "--tensor-parallel-size: layout {} has no ranks, only kv_cache_scales does",
                Name(to));
  }
  if (!flags.model_type.empty() && to != ScaleLayout::kKvCacheScales) {
    return Fail(ErrorCode::kInvalidArgument,
                "--model-type: layout {} names no type of model, only kv_cache_scales does",
                Name(to));
  }
  if (!IsPrintableUtf8(flags.model_type)) {
    return Fail(ErrorCode::kInvalidArgument, "--model-type {}: want UTF-8 text",
                PrintableText(flags.model_type));
  }
  if (to == ScaleLayout::kTurboquant && flags.model.empty()) {
    return Fail(ErrorCode::kInvalidArgument,
                "a calibration table is bound to one model: say which with -m MODEL");
  }
  return {};
}

struct Source {
  ScaleLayout layout;
  EngineScales scales;
};

// Reads --from, and checks it against the model where one is named.
Result<Source> ReadSource(const ConvertFlags& flags, const std::optional<ModelFingerprint>& model) {
  TQ_ASSIGN_OR_RETURN(const std::string text, ReadFile(flags.from));
  TQ_RETURN_IF_ERROR(CheckJson(text, flags.from));
  const nlohmann::json document = nlohmann::json::parse(text);
  Source source{};
  if (flags.from_layout == "auto") {
    TQ_ASSIGN_OR_RETURN(source.layout, DetectScaleLayout(document, flags.from));
  } else {
    source.layout = ScaleLayoutOf(flags.from_layout);
  }
  Status fits;
  if (source.layout == ScaleLayout::kTurboquant) {
    TQ_ASSIGN_OR_RETURN(const CalibrationTable table, ParseCalibrationTable(text, flags.from));
    if (model) fits = table.CheckModel(*model);
    source.scales = ScalesOfTable(table);
  } else {
    TQ_ASSIGN_OR_RETURN(source.scales, ReadEngineScales(document, source.layout, flags.from));
    if (model) fits = CheckScalesFit(source.scales, *model);
  }
  if (!fits) return Fail(fits.error().code, "{}: {}", flags.from, fits.error().message);
  return source;
}

// As the layout can hold them.
Result<EngineScales> ScalesFor(ScaleLayout to, const EngineScales& scales,
                               const ConvertFlags& flags,
                               const std::optional<ModelFingerprint>& model, LossNotes* notes) {
  const int num_parts = std::max(flags.tensor_parallel_size, 1);
  auto parts = WithParts(scales, num_parts, notes);
  if (!parts) {
    return Fail(parts.error().code, "--tensor-parallel-size {}: {}: {}", num_parts, flags.from,
                parts.error().message);
  }
  if (!HasOneFactorForKAndV(to)) return parts;
  EngineScales shared = WithOneFactor(std::move(*parts), notes);
  if (!flags.model_type.empty()) shared.model_type = flags.model_type;
  if (shared.model_type.empty() && model) shared.model_type = model->architecture;
  if (shared.model_type.empty() && to == ScaleLayout::kKvCacheScales) {
    return Fail(ErrorCode::kInvalidArgument,
                "layout kv_cache_scales names the type of model, and {} does not: say it with "
                "--model-type (as the model's config.json has it) or -m MODEL",
                flags.from);
  }
  return shared;
}

nlohmann::ordered_json LayersDocument(const EngineScales& scales) {
  const auto numbers = [](const std::vector<float>& floats) {
    std::vector<double> doubles;
    for (const float number : floats) doubles.push_back(ShortestDouble(number));
    return doubles;
  };
  nlohmann::ordered_json layers = nlohmann::ordered_json::array();
  for (const LayerScales& layer : scales.layers) {
    layers.push_back({{"k_scales", numbers(layer.k)}, {"v_scales", numbers(layer.v)}});
  }
  return layers;
}

void PrintReport(const ConvertFlags& flags, ScaleLayout from, const EngineScales& written,
                 const LossNotes& notes) {
  if (!flags.json) {
    Print(fmt::format("{}: {} layers in layout {}, from {} ({})\n", flags.output,
                      written.layers.size(), flags.to_layout, flags.from, Name(from)));
    return;
  }
  const nlohmann::ordered_json document = {{"from", flags.from},
                                           {"from_layout", Name(from)},
                                           {"output", flags.output},
                                           {"to_layout", flags.to_layout},
                                           {"notes", notes},
                                           {"num_layers", written.layers.size()},
                                           {"layers", LayersDocument(written)}};
  Print(document.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
}

Result<int> Convert(const ConvertFlags& flags) {
  const ScaleLayout to = ScaleLayoutOf(flags.to_layout);
  TQ_RETURN_IF_ERROR(CheckFlags(flags, to));
  std::optional<ModelFingerprint> model;
  if (!flags.model.empty()) {
    TQ_ASSIGN_OR_RETURN(model, FingerprintModel(flags.model));
  }
  TQ_ASSIGN_OR_RETURN(const Source source, ReadSource(flags, model));
  LossNotes notes;
  EngineScales written;
  std::string content;
  if (to == ScaleLayout::kTurboquant) {
    if (source.layout == to) {
      return Fail(ErrorCode::kInvalidArgument, "{}: is a calibration table already", flags.from);
    }
    auto table = TableOfScales(source.scales, *model, PrintableText(flags.from, 256), &notes);
    if (!table) return Fail(table.error().code, "{}: {}", flags.from, table.error().message);
    content = turboquant::ToJson(*table);
    written = ScalesOfTable(*table);
  } else {
    TQ_ASSIGN_OR_RETURN(written, ScalesFor(to, source.scales, flags, model, &notes));
    content = turboquant::ToJson(written, to);
  }
  TQ_RETURN_IF_ERROR(WriteFileAtomically(flags.output, content));
  for (const std::string& note : notes) spdlog::warn("{}", note);
  if (to == ScaleLayout::kTurboquant) {
    spdlog::info(
        "such a table has no ranges of rotated values and channels: it serves per_tensor "
        "and per_head with --kv-transform none");
  }
  PrintReport(flags, source.layout, written, notes);
  return kExitDone;
}

}  // namespace

Verb AddConvert(CLI::App* program) {
  auto flags = std::make_shared<ConvertFlags>();
  CLI::App* verb = program->add_subcommand(
      "convert", "convert scales of a KV cache between our table and the files of other engines");
  std::vector<std::string> from_layouts = LayoutNames();
  from_layouts.insert(from_layouts.begin(), "auto");
  verb->add_option("--from", flags->from, "file to read")->required();
  verb->add_option("--from-layout", flags->from_layout,
                   fmt::format("its layout: {}", fmt::join(from_layouts, ", ")))
      ->check(CLI::IsMember(from_layouts))
      ->capture_default_str();
  verb->add_option("--to-layout", flags->to_layout,
                   fmt::format("layout to write: {}", fmt::join(LayoutNames(), ", ")))
      ->required()
      ->check(CLI::IsMember(LayoutNames()));
  verb->add_option("-o,--output", flags->output, "file to write")->required();
  verb->add_option("-m,--model", flags->model,
                   "GGUF file that the scales have to fit; needed for layout turboquant, whose "
                   "tables are bound to one model");
  verb->add_option("--tensor-parallel-size", flags->tensor_parallel_size,
                   "ranks of a kv_cache_scales file that is written (default: 1)")
      ->check(CLI::Range(1, 1024));
  verb->add_option(
      "--model-type", flags->model_type,
      "model_type of a kv_cache_scales file that is written (default: the one read, or "
      "the GGUF's architecture)");
  verb->add_flag("--json", flags->json, "print the report as one JSON document");
  return {verb, [flags] {
            const Result<int> status = Convert(*flags);
            return status ? *status : Report(status.error());
          }};
}

}  // namespace turboquant::cli
