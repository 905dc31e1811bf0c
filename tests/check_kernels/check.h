// What the checks of all operations share: the row under test, its cases, how a failure is told.
#ifndef TURBOQUANT_TESTS_CHECK_KERNELS_CHECK_H_
#define TURBOQUANT_TESTS_CHECK_KERNELS_CHECK_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "data.h"
#include "guarded_buffer.h"
#include "kernels/kernel_table.h"

namespace turboquant::check {

// Half an ulp relative to 1: the largest relative error of one rounded operation.
inline constexpr double kRoundoff = 0x1p-24;

struct Options {
  std::string isa;     // only rows of this instruction set; empty = all
  std::string filter;  // only rows whose name contains this
  uint64_t seed = 1;
  bool quick = false;  // about every 10th case instead of all
  bool bench = false;
};

// One row of the table under test. The first failure of a row is printed, with everything needed to
// repeat it; the rest of the row is then left out.
class RowCheck {
 public:
  RowCheck(const KernelRow& row, const Options& options) : row_(row), options_(options) {}
  const KernelRow& row() const { return row_; }
  bool failed() const { return failed_; }
  int64_t num_cases() const { return num_cases_; }

  // Starts a case; false if the quick setting leaves it out or the row has failed. Cases are
  // numbered in order, so that the seed of each is the same whatever is left out.
  bool Begin(const std::string& shape);
  uint64_t case_seed() const;

  void Fail(const std::string& what);
  // |actual - expected| <= bound; NaN only where NaN is expected, infinities equal.
  bool ExpectNear(double actual, double expected, double bound, const std::string& where);
  bool ExpectBytes(const void* actual, const void* expected, size_t bytes,
                   const std::string& where);
  bool ExpectGuards(const GuardedBuffer& buffer, const char* name);

 private:
  const KernelRow& row_;
  const Options& options_;
  std::string shape_;
  int64_t case_index_ = -1;
  int64_t num_cases_ = 0;
  bool failed_ = false;
};

// A tile of QK or PV.
struct TileCase {
  KvCacheDtype dtype;
  int head_dim, num_tokens, num_rows;
  int group_size;  // channels per scale
  bool scales;     // there are scales in the block
  bool prefetch;
  DataKind codes, rows;  // rows: of q or p
  std::string ToString() const;
};
// Every head size x tokens x rows x granularity that `side` of the format has, with kinds of data
// that go round.
void ForTileCases(KvCacheDtype dtype, KvSide side,
                  const std::function<void(const TileCase&)>& body);
// Narrow codes come in whole units of channels of K and tokens of V.
bool HasWholeUnits(KvCacheDtype dtype, const TileShape& shape);

// f16 scales [num_groups][stride] with the last group cut off after num_tokens. one_power_of_two:
// all are the same power of two and zero points are 0, so that scaling is exact.
struct TileScales {
  const uint16_t* scales = nullptr;
  const uint16_t* zero_points = nullptr;
  int stride = 0;
  double Scale(int group, int token) const;
  double ZeroPoint(int group, int token) const;
};
class ScaleBuffers {
 public:
  ScaleBuffers();
  TileScales Fill(const TileCase& c, bool one_power_of_two, Rng& rng);

 private:
  GuardedBuffer scales_, zero_points_;
};

void CheckPrepareQ(RowCheck& check);
void CheckQk(RowCheck& check);
void CheckSoftmax(RowCheck& check);
void CheckPv(RowCheck& check);
void CheckEncode(RowCheck& check);
void CheckToHalf(RowCheck& check);
void CheckRotate(RowCheck& check);
void CheckFitScales(RowCheck& check);
void CheckExpandScales(RowCheck& check);
void CheckMeanDot(RowCheck& check);
void CheckQuantizeRow(RowCheck& check);
void CheckMatmul(RowCheck& check);

// The row of the same folder that makes queries for a QK row, and the QK row that takes what a
// prepare_q row makes.
const KernelRow& PartnerRow(const KernelRow& row);

// Times every row that this CPU runs, and whole attention tiles per format.
void RunBench(const Options& options);

}  // namespace turboquant::check

#endif  // TURBOQUANT_TESTS_CHECK_KERNELS_CHECK_H_
