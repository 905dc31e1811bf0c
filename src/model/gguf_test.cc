#include "model/gguf.h"

#include <ggml.h>
#include <gguf.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "model/gguf_test_util.h"

namespace turboquant {
namespace {

using ::testing::HasSubstr;

std::string ErrorOf(const std::vector<uint8_t>& bytes) {
  const auto file = Gguf::Parse(bytes, "x.gguf");
  return file ? "no error" : file.error().message;
}

// ggml's own reader, without its log.
bool GgmlAccepts(const std::vector<uint8_t>& bytes) {
  ggml_log_set([](ggml_log_level, const char*, void*) {}, nullptr);
  ggml_context* context = nullptr;
  gguf_context* gguf =
      gguf_init_from_buffer(bytes.data(), bytes.size(), {.no_alloc = true, .ctx = &context});
  const bool ok = gguf != nullptr;
  if (context != nullptr) ggml_free(context);
  if (gguf != nullptr) gguf_free(gguf);
  return ok;
}

TEST(GgmlTypesTest, TableAgreesWithGgml) {
  for (uint32_t id = 0; id < GGML_TYPE_COUNT; ++id) {
    const GgmlTypeInfo* info = FindGgmlType(id);
    const auto type = static_cast<ggml_type>(id);
    if (ggml_blck_size(type) == 0) {
      EXPECT_EQ(info, nullptr) << id;
      continue;
    }
    ASSERT_NE(info, nullptr) << "ggml type " << ggml_type_name(type) << " is not in the table";
    EXPECT_EQ(info->block_size, ggml_blck_size(type)) << info->name;
    EXPECT_EQ(info->type_size, ggml_type_size(type)) << info->name;
    EXPECT_STRCASEEQ(std::string(info->name).c_str(), ggml_type_name(type));
    // Weights are multiplied and looked up, so ggml must be able to turn them into floats.
    if (info->is_weight && type != GGML_TYPE_F32)
      EXPECT_NE(ggml_get_type_traits(type)->to_float, nullptr) << info->name;
  }
  EXPECT_EQ(FindGgmlType(GGML_TYPE_COUNT), nullptr);
}

TEST(GgufTest, ReadsAllValueTypes) {
  GgufBuilder b;
  b.Set<uint8_t>("u8", GgufType::kU8, 200).Set<int8_t>("i8", GgufType::kI8, -5);
  b.Set<uint16_t>("u16", GgufType::kU16, 60000).Set<int16_t>("i16", GgufType::kI16, -30000);
  b.U32("u32", 4000000000u).Set<int32_t>("i32", GgufType::kI32, -7);
  b.Set<uint64_t>("u64", GgufType::kU64, std::numeric_limits<uint64_t>::max())
      .Set<int64_t>("i64", GgufType::kI64, -1);
  b.F32("f32", 1.5f)
      .Set<double>("f64", GgufType::kF64, -2.25)
      .Bool("bool", true)
      .String("string", "\xc3\xa9t\xc3\xa9");
  const std::vector<std::string> strings = {"a", "", "ccc"};
  const std::vector<int16_t> numbers = {-1, 2, 300};
  const std::vector<float> floats = {0.5f, -1};
  b.Strings("strings", strings)
      .Array<int16_t>("numbers", GgufType::kI16, numbers)
      .Array<float>("floats", GgufType::kF32, floats);
  const std::vector<uint8_t> bytes = b.Build();
  const auto file = Gguf::Parse(bytes, "x.gguf");
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_EQ(file->metadata().size(), 15u);
  EXPECT_EQ(file->FindEntry("i16")->type, GgufType::kI16);
  EXPECT_EQ(std::get<uint64_t>(*file->Find("u8")), 200u);
  EXPECT_EQ(std::get<int64_t>(*file->Find("i8")), -5);
  EXPECT_EQ(std::get<uint64_t>(*file->Find("u64")), std::numeric_limits<uint64_t>::max());
  EXPECT_EQ(std::get<double>(*file->Find("f64")), -2.25);
  EXPECT_EQ(*file->GetFloat("f32", 0, 2), 1.5);
  EXPECT_EQ(*file->GetUint("u16", 0, 65535), 60000u);
  EXPECT_EQ(*file->GetBool("bool"), true);
  EXPECT_EQ(*file->GetString("string"), "\xc3\xa9t\xc3\xa9");
  const GgufArray* array = *file->GetArray("strings");
  EXPECT_THAT(array->strings, ::testing::ElementsAre("a", "", "ccc"));
  array = *file->GetArray("numbers");
  EXPECT_TRUE(array->is_integer());
  EXPECT_EQ(array->Integer(0), -1);
  EXPECT_EQ(array->Integer(2), 300);
  EXPECT_EQ((*file->GetArray("floats"))->Float(1), -1.0);
  EXPECT_EQ(*file->GetArray("absent"), nullptr);
}

TEST(GgufTest, GettersRefuseWrongTypesAndRanges) {
  GgufBuilder b;
  b.U32("n", 5)
      .Set<int32_t>("negative", GgufType::kI32, -1)
      .F32("nan", std::numeric_limits<float>::quiet_NaN())
      .Bool("b", true);
  const std::vector<uint8_t> bytes = b.Build();
  const auto file = Gguf::Parse(bytes, "x.gguf");
  ASSERT_TRUE(file);
  EXPECT_EQ(file->GetUint("n", 6, 9).error().message, "x.gguf: key 'n' is 5, expected 6 to 9");
  EXPECT_THAT(file->GetUint("negative", 0, 9).error().message, HasSubstr("is -1"));
  EXPECT_EQ(file->GetUint("nan", 0, 9).error().message,
            "x.gguf: key 'nan' has type f32, expected an integer");
  EXPECT_EQ(file->GetUint("b", 0, 9).error().code, ErrorCode::kCorrupt);
  EXPECT_EQ(file->GetFloat("nan", -1e30, 1e30).error().code, ErrorCode::kCorrupt);
  EXPECT_EQ(file->GetFloat("n", 0, 9).error().code, ErrorCode::kCorrupt);
  EXPECT_EQ(file->GetString("n").error().code, ErrorCode::kCorrupt);
  EXPECT_EQ(file->GetArray("n").error().code, ErrorCode::kCorrupt);
  EXPECT_EQ(file->GetUint("absent", 0, 9).error().code, ErrorCode::kNotFound);
  EXPECT_EQ(*file->GetUint("absent", 0, 9, 100), 100u);
  EXPECT_EQ(*file->GetString("absent", "x"), "x");
  EXPECT_EQ(*file->GetBool("absent", true), true);
}

TEST(GgufTest, PlacesTensors) {
  GgufBuilder b;
  b.Tensor("a", {3}).Tensor("b", {32, 2}, 8).Tensor("c", {5, 1, 1, 2}, 1);
  const std::vector<uint8_t> bytes = b.Build(7);
  const auto file = Gguf::Parse(bytes, "x.gguf");
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_EQ(file->tensors().size(), 3u);
  const GgufTensor* tensor = file->FindTensor("b");
  ASSERT_NE(tensor, nullptr);
  EXPECT_EQ(tensor->bytes, 2u * 34);
  EXPECT_EQ(tensor->offset, file->FindTensor("a")->offset + 32);
  EXPECT_EQ(file->Data(*tensor).size(), 68u);
  EXPECT_EQ(file->FindTensor("c")->num_elements(), 10u);
  EXPECT_TRUE(file->FindTensor("a")->HasShape(std::vector<uint64_t>{3, 1}));
  EXPECT_FALSE(file->FindTensor("a")->HasShape(std::vector<uint64_t>{1, 3}));
  EXPECT_EQ(file->FindTensor("d"), nullptr);
}

TEST(GgufTest, AlignmentIsHonoured) {
  for (const uint32_t alignment : {8u, 64u, 4096u}) {
    GgufBuilder b;
    b.U32("general.alignment", alignment).Tensor("a", {3}).Tensor("b", {3});
    b.alignment = alignment;
    const std::vector<uint8_t> bytes = b.Build();
    const auto file = Gguf::Parse(bytes, "x.gguf");
    ASSERT_TRUE(file) << file.error().message;
    EXPECT_TRUE(GgmlAccepts(bytes)) << alignment;
    EXPECT_EQ(file->tensors()[1].offset % alignment, 0u);
  }
  for (const uint32_t alignment : {0u, 3u, 4u, 1u << 30}) {
    EXPECT_THAT(ErrorOf(GgufBuilder().U32("general.alignment", alignment).Build()),
                HasSubstr("expected a power of two"));
  }
  EXPECT_THAT(ErrorOf(GgufBuilder().Set<uint64_t>("general.alignment", GgufType::kU64, 32).Build()),
              HasSubstr("expected u32"));
}

// Every prefix of a file is refused, and never read past its end (the sanitizer builds would tell).
TEST(GgufTest, EveryTruncationIsRefused) {
  const std::vector<uint8_t> whole = GgufBuilder(TinyModel()).Build();
  ASSERT_TRUE(Gguf::Parse(whole, "x.gguf"));
  // ggml needs no padding after the last tensor, neither do we.
  const size_t data_end = Gguf::Parse(whole, "x")->tensors().back().offset +
                          Gguf::Parse(whole, "x")->tensors().back().bytes;
  for (size_t size = 0; size < data_end; size += size < 9000 ? 1 : 997) {
    const std::vector<uint8_t> cut(whole.begin(), whole.begin() + static_cast<ptrdiff_t>(size));
    ASSERT_FALSE(Gguf::Parse(cut, "x.gguf")) << size;
  }
}

TEST(GgufTest, HeaderErrorsNameTheCause) {
  EXPECT_EQ(ErrorOf({}), "x.gguf: the file is empty");
  EXPECT_THAT(ErrorOf({'G', 'G'}), HasSubstr("the file ends at byte 2"));
  EXPECT_THAT(ErrorOf({'P', 'K', 3, 4, 0, 0}),
              HasSubstr("not a GGUF file (the first bytes are 504b0304"));
  GgufBuilder b;
  b.version = 1;
  EXPECT_EQ(ErrorOf(b.Build()), "x.gguf: GGUF version 1; supported: 2, 3");
  b.version = 0x03000000;
  EXPECT_THAT(ErrorOf(b.Build()), HasSubstr("big-endian"));
  b.version = 2;
  EXPECT_EQ(ErrorOf(b.Build()), "no error");
  b.num_entries = 1ull << 62;
  EXPECT_THAT(ErrorOf(b.Build()), HasSubstr("metadata keys cannot fit"));
  b.num_entries.reset();
  b.num_tensors = ~0ull;
  EXPECT_THAT(ErrorOf(b.Build()), HasSubstr("tensors cannot fit"));
}

TEST(GgufTest, MetadataErrorsNameTheCause) {
  EXPECT_THAT(ErrorOf(GgufBuilder().U32("a", 1).U32("b", 1).AddDuplicate("a").Build()),
              HasSubstr("'a' is there twice"));
  EXPECT_THAT(ErrorOf(GgufBuilder().U32("", 1).Build()), HasSubstr("is empty"));
  EXPECT_THAT(ErrorOf(GgufBuilder().U32("a\nb", 1).Build()), HasSubstr("'a\\x0ab'"));
  EXPECT_THAT(ErrorOf(GgufBuilder().U32("\xff\xfe", 1).Build()),
              HasSubstr("not printable UTF-8: '\\xff\\xfe'"));
  EXPECT_THAT(ErrorOf(GgufBuilder().SetRaw("a", static_cast<GgufType>(13), {0, 0, 0, 0}).Build()),
              HasSubstr("unknown type 13"));
  ByteWriter nested;
  nested.Number<uint32_t>(9);
  nested.Number<uint64_t>(0);
  EXPECT_THAT(ErrorOf(GgufBuilder().SetRaw("a", GgufType::kArray, nested.bytes()).Build()),
              HasSubstr("array of arrays"));
  for (const uint32_t element : {0u, 5u, 8u, 12u}) {
    ByteWriter huge;
    huge.Number<uint32_t>(element);
    huge.Number<uint64_t>(0x2000000000000001);  // times 8 overflows to 8
    EXPECT_THAT(
        ErrorOf(GgufBuilder().SetRaw("a", GgufType::kArray, huge.bytes()).U32("b", 1).Build()),
        HasSubstr("claims"));
  }
  ByteWriter long_string;
  long_string.Number<uint64_t>(~0ull);
  EXPECT_THAT(ErrorOf(GgufBuilder().SetRaw("a", GgufType::kString, long_string.bytes()).Build()),
              HasSubstr("claims"));
}

TEST(GgufTest, TensorErrorsNameTheCause) {
  const auto error = [](std::vector<uint64_t> shape, uint32_t type = 0,
                        std::string_view name = "t") {
    return ErrorOf(GgufBuilder().Tensor(name, std::move(shape), type).Build());
  };
  EXPECT_THAT(error({}), HasSubstr("0 dimensions"));
  EXPECT_THAT(error({1, 1, 1, 1, 1}), HasSubstr("5 dimensions"));
  EXPECT_THAT(error({4, 0}), HasSubstr("has no elements"));
  EXPECT_THAT(error({0}), HasSubstr("has no elements"));
  EXPECT_THAT(error({1ull << 32, 1ull << 32}), HasSubstr("larger than the file"));
  EXPECT_THAT(error({1ull << 63, 2, 2}), HasSubstr("larger than the file"));
  EXPECT_THAT(error({33}, 2), HasSubstr("do not divide into Q4_0 blocks of 32"));
  EXPECT_THAT(error({32}, 4), HasSubstr("unknown type 4"));
  EXPECT_THAT(error({32}, 0xffffffff), HasSubstr("unknown type"));
  EXPECT_THAT(error({4}, 0, ""), HasSubstr("is empty"));
  EXPECT_THAT(error({4}, 0, "a\tb"), HasSubstr("not printable"));
  EXPECT_THAT(error({4}, 0, std::string(64, 'a')), HasSubstr("more than 63"));
  EXPECT_EQ(error({4}, 0, std::string(63, 'a')), "no error");

  GgufBuilder b;
  b.Tensor("a", {8}).Tensor("b", {8});
  b.tensors[1].name = "a";
  EXPECT_THAT(ErrorOf(b.Build()), HasSubstr("tensor 'a' is there twice"));
  b.tensors[1].name = "b";
  for (const uint64_t offset : {uint64_t{0}, uint64_t{16}, uint64_t{64}, ~uint64_t{31}}) {
    b.tensors[1].offset = offset;
    EXPECT_THAT(ErrorOf(b.Build()), HasSubstr("expected 32"));
  }
}

// One byte of a real file changed: whatever we still accept, ggml must accept, because libllama
// opens the same file.
TEST(GgufTest, WhatWeAcceptGgmlAccepts) {
  GgufBuilder b = TinyModel("qwen3");
  const std::vector<std::string> few = {"a", "b"};
  b.Strings("tokenizer.ggml.tokens", few)
      .Erase("tokenizer.ggml.token_type");  // shorter, so that more bytes matter
  std::vector<uint8_t> bytes = b.Build();
  const size_t header = Gguf::Parse(bytes, "x")->tensors()[0].offset;
  int accepted = 0, refused = 0;
  for (size_t i = 0; i < header; ++i) {
    for (const uint8_t value : {uint8_t{0}, uint8_t{1}, uint8_t{0x20}, uint8_t{0xff}}) {
      const uint8_t before = std::exchange(bytes[i], value);
      if (Gguf::Parse(bytes, "x")) {
        ++accepted;
        ASSERT_TRUE(GgmlAccepts(bytes)) << "byte " << i << " = " << int{value};
      } else {
        ++refused;
      }
      bytes[i] = before;
    }
  }
  EXPECT_GT(accepted, 100);
  EXPECT_GT(refused, 100);
}

TEST(PrintableTextTest, EscapesAndCuts) {
  EXPECT_EQ(PrintableText("plain"), "plain");
  EXPECT_EQ(PrintableText("a\nb\x7f"), "a\\x0ab\\x7f");
  EXPECT_EQ(PrintableText("\xc3\xa9\xff"), "\xc3\xa9\\xff");
  EXPECT_EQ(PrintableText("\xc0\x80"), "\\xc0\\x80");           // overlong
  EXPECT_EQ(PrintableText("\xed\xa0\x80"), "\\xed\\xa0\\x80");  // surrogate
  EXPECT_EQ(PrintableText("\xf4\x90\x80\x80"), "\\xf4\\x90\\x80\\x80");
  EXPECT_EQ(PrintableText("abcdef", 3), "abc...");
  EXPECT_EQ(PrintableText("ab\xc3\xa9", 3), "ab...");
}

}  // namespace
}  // namespace turboquant
