// The op that turns strings and integers into ids, as categorical columns do. It converts all
// features of a batch.

#include <algorithm>
#include <string>
#include <vector>

#include "runtime.h"
#include "tensorflow/core/framework/lookup_interface.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/shape_inference.h"

namespace util {
// The hash of tf.strings.to_hash_bucket_fast, defined in TensorFlow's library.
uint64_t Fingerprint64(const char* s, size_t len);
}  // namespace util

namespace estimator_emb {
namespace {

using tensorflow::OpKernel;
using tensorflow::OpKernelConstruction;
using tensorflow::TensorShape;
using tensorflow::tstring;
using tensorflow::lookup::LookupInterface;

// How a feature's values become ids. The same numbers are in to_ids.py.
enum Kind {
  kHash = 0,        // `buckets` of hashes.
  kVocabulary = 1,  // Ids in a table. Others are `otherwise` or, with buckets, hashed beyond it.
  kIdentity = 2,    // Integers in [0, buckets). Others are `otherwise`.
};

REGISTER_OP("HostTablesToIds")
    .Input("values: T")
    .Input("vocabularies: V * resource")  // Of features of kind kVocabulary.
    .Input("places: P * int64")           // Indices of sparse features whose misses are left out.
    .Attr("T: list({string, int32, int64})")
    .Attr("V: int >= 0")
    .Attr("P: int >= 0")
    .Attr("N: int >= 1")  // The number of features.
    .Attr("kinds: list(int)")
    .Attr("buckets: list(int)")
    .Attr("otherwise: list(int)")
    .Attr("padded: list(bool)")  // Whether '' and -1 stand for no value, with id -1.
    .Attr("placed: list(bool)")  // Whether `places` has the feature.
    .Output("ids: N * int64")
    .Output("kept: P * int64")  // The `places` with ids that are not left out.
    .SetIsStateful()            // Because vocabularies are stateful.
    .SetShapeFn([](tensorflow::shape_inference::InferenceContext* c) {
      std::vector<bool> placed;
      TF_RETURN_IF_ERROR(c->GetAttr("placed", &placed));
      for (int i = 0; i < c->num_outputs(); ++i) c->set_output(i, c->UnknownShape());
      for (size_t i = 0; i < placed.size(); ++i) {
        if (!placed[i]) c->set_output(i, c->input(i));
      }
      return tensorflow::Status();
    })
    .Doc("The ids of all features whose values are strings, or integers to be looked up.");

class ToIds : public OpKernel {
 public:
  explicit ToIds(OpKernelConstruction* ctx) : OpKernel(ctx) {
    OP_REQUIRES_OK(ctx, ctx->GetAttr("kinds", &kinds_));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("buckets", &buckets_));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("otherwise", &otherwise_));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("padded", &padded_));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("placed", &placed_));
  }

  void Compute(OpKernelContext* ctx) override {
    OpInputList values, vocabularies, places;
    OP_REQUIRES_OK(ctx, ctx->input_list("values", &values));
    OP_REQUIRES_OK(ctx, ctx->input_list("vocabularies", &vocabularies));
    OP_REQUIRES_OK(ctx, ctx->input_list("places", &places));
    const size_t n = values.size();
    OP_REQUIRES(
        ctx,
        kinds_.size() == n && buckets_.size() == n && otherwise_.size() == n &&
            padded_.size() == n && placed_.size() == n,
        tensorflow::errors::InvalidArgument("The attributes of features differ in length."));
    std::vector<tensorflow::core::RefCountPtr<LookupInterface>> tables(n);
    std::vector<Tensor> ids(n);
    std::vector<Task> tasks;
    int next_vocabulary = 0;
    for (size_t i = 0; i < n; ++i) {
      OP_REQUIRES_OK(ctx, ctx->allocate_temp(tensorflow::DT_INT64, values[i].shape(), &ids[i]));
      const int64_t count = values[i].NumElements();
      if (kinds_[i] == kVocabulary) {
        const auto& handle = vocabularies[next_vocabulary++].flat<tensorflow::ResourceHandle>()(0);
        OP_REQUIRES_OK(ctx, tensorflow::LookupResource(ctx, handle, &tables[i]));
        tasks.push_back({i, 0, count});
        continue;
      }
      for (int64_t begin = 0; begin < count; begin += kChunk) {
        tasks.push_back({i, begin, std::min(begin + kChunk, count)});
      }
    }
    std::vector<tensorflow::Status> found(tasks.size());
    run_all(ctx, tasks.size(), [&](int number) {
      const Task& task = tasks[number];
      LookupInterface* const table = tables[task.feature].get();
      found[number] = convert(ctx, task, values[task.feature], table, &ids[task.feature]);
    });
    for (const auto& status : found) OP_REQUIRES_OK(ctx, status);
    int next_place = 0;
    for (size_t i = 0; i < n; ++i) {
      if (placed_[i]) {
        Tensor kept = places[next_place];
        OP_REQUIRES_OK(ctx, leave_out_misses(ctx, &ids[i], &kept));
        ctx->set_output(n + next_place++, kept);
      }
      ctx->set_output(i, ids[i]);
    }
  }

 private:
  static constexpr int64_t kChunk = 4096;

  // Values [begin, end) of a feature.
  struct Task {
    size_t feature;
    int64_t begin, end;
  };

  tensorflow::Status convert(OpKernelContext* ctx, const Task& task, const Tensor& values,
                             LookupInterface* table, Tensor* ids) const {
    switch (values.dtype()) {
      case tensorflow::DT_STRING: return convert<tstring>(ctx, task, values, table, ids);
      case tensorflow::DT_INT32: return convert<int32_t>(ctx, task, values, table, ids);
      default: return convert<tensorflow::int64>(ctx, task, values, table, ids);
    }
  }

  template <typename T>
  tensorflow::Status convert(OpKernelContext* ctx, const Task& task, const Tensor& values,
                             LookupInterface* table, Tensor* ids) const {
    const size_t i = task.feature;
    const int64_t buckets = buckets_[i], otherwise = otherwise_[i];
    const T* const from = values.flat<T>().data();
    auto* const to = ids->flat<tensorflow::int64>().data();
    if (kinds_[i] == kVocabulary) {
      Tensor keys = values, missing(tensorflow::DT_INT64, TensorShape({}));
      missing.scalar<tensorflow::int64>()() = otherwise;
      if (values.dtype() == tensorflow::DT_INT32) {  // Vocabularies of integers have 64 bits.
        TF_RETURN_IF_ERROR(ctx->allocate_temp(tensorflow::DT_INT64, values.shape(), &keys));
        for (int64_t j = 0; j < task.end; ++j) keys.flat<tensorflow::int64>()(j) = number(from[j]);
      }
      TF_RETURN_IF_ERROR(table->Find(ctx, keys, ids, missing));
      const int64_t size = buckets ? table->size() : 0;
      for (int64_t j = 0; buckets && j < task.end; ++j) {
        if (to[j] == otherwise) to[j] = size + bucket(from[j], buckets);
      }
    } else if (kinds_[i] == kHash) {
      for (int64_t j = task.begin; j < task.end; ++j) to[j] = bucket(from[j], buckets);
    } else {
      for (int64_t j = task.begin; j < task.end; ++j) {
        const int64_t value = number(from[j]);
        to[j] = value < 0 || value >= buckets ? otherwise : value;
      }
    }
    for (int64_t j = task.begin; padded_[i] && j < task.end; ++j) {
      if (is_padding(from[j])) to[j] = -1;
    }
    return tensorflow::Status();
  }

  static int64_t bucket(const tstring& value, uint64_t buckets) {
    return ::util::Fingerprint64(value.data(), value.size()) % buckets;
  }
  static int64_t bucket(int64_t value, uint64_t buckets) {
    const std::string decimal = std::to_string(value);
    return ::util::Fingerprint64(decimal.data(), decimal.size()) % buckets;
  }

  static int64_t number(const tstring&) { return 0; }  // No string is of kind kIdentity.
  static int64_t number(int64_t value) { return value; }

  static bool is_padding(const tstring& value) { return value.empty(); }
  static bool is_padding(int64_t value) { return value == -1; }

  // Leaves out ids that are -1, and their places. If ids and places do not match, they stay
  // unchanged, because `HostTablesIdsAreGood` reports them.
  static tensorflow::Status leave_out_misses(OpKernelContext* ctx, Tensor* ids, Tensor* places) {
    const int64_t count = ids->NumElements();
    if (ids->dims() != 1 || places->dims() != 2 || places->dim_size(0) != count) {
      return tensorflow::Status();
    }
    const auto all = ids->vec<tensorflow::int64>();
    const int64_t misses = std::count(all.data(), all.data() + count, -1);
    if (!misses) return tensorflow::Status();
    const int64_t width = places->dim_size(1);
    Tensor left, kept;
    TF_RETURN_IF_ERROR(
        ctx->allocate_temp(tensorflow::DT_INT64, TensorShape({count - misses}), &left));
    TF_RETURN_IF_ERROR(
        ctx->allocate_temp(tensorflow::DT_INT64, TensorShape({count - misses, width}), &kept));
    int64_t next = 0;
    for (int64_t j = 0; j < count; ++j) {
      if (all(j) == -1) continue;
      left.vec<tensorflow::int64>()(next) = all(j);
      const auto* const place = places->flat<tensorflow::int64>().data() + j * width;
      std::copy(place, place + width, kept.flat<tensorflow::int64>().data() + next++ * width);
    }
    *ids = left;
    *places = kept;
    return tensorflow::Status();
  }

  std::vector<int> kinds_;
  std::vector<tensorflow::int64> buckets_, otherwise_;
  std::vector<bool> padded_, placed_;
};
REGISTER_KERNEL_BUILDER(Name("HostTablesToIds").Device(tensorflow::DEVICE_CPU), ToIds);

}  // namespace
}  // namespace estimator_emb
