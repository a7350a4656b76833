// Code that all TensorFlow ops of this library share: the kernels of this machine, the rules of
// optimizers, the description of a batch's features, and the messages in a cluster.

#pragma once

#include <atomic>
#include <string>
#include <vector>

#include "kernels.h"
#include "runtime.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/shape_inference.h"

namespace estimator_emb {

// The kernels of the best instruction set that this machine has.
const Kernels& kernels();

// The rule that a library has registered under a name, or null.
Rule rule_of(const std::string& name);

namespace {

using tensorflow::OpKernel;
using tensorflow::OpKernelConstruction;
using tensorflow::TensorShape;

// The attributes and inputs that describe the occurrences of all features, the same in every op.
#define ESTIMATOR_EMB_FEATURES                                                        \
  Input("ids: I")                    /* per feature */                                \
      .Input("places: P * int64")    /* of features of form kPlaces: [n] or [n, 2] */ \
      .Input("shapes: P * int64")    /* of the same: number of samples first */       \
      .Input("weights: W * float32") /* of weighted features: [n] */                  \
      .Attr("I: list({int32, int64})")                                                \
      .Attr("P: int >= 0")                                                            \
      .Attr("W: int >= 0")                                                            \
      .Attr("forms: list(int)")                                                       \
      .Attr("combiners: list(int)")                                                   \
      .Attr("limits: list(int)")                                                      \
      .Attr("weighted: list(bool)")                                                   \
      .Attr("owners: list(string)") /* how errors begin */                            \
      .Attr("table_of: list(int)")

// The attributes that describe the rules of tables or shards, the same in every update op.
#define ESTIMATOR_EMB_RULES                                               \
  Attr("rules: list(string)")                                             \
      .Attr("slots: list(int)")                                           \
      .Attr("constants: list(float)") /* of one after those of another */ \
      .Attr("constants_of: list(int)")                                    \
      .Attr("every_row: list(bool)") /* whether rows that do not occur are updated too */

// A table or shard that an op updates. Its variables are its weights, then its slots.
struct Updated {
  Rule rule;
  int variable, variables, constant;
  bool every_row;
};

tensorflow::Status read_rules(OpKernelConstruction* ctx, std::vector<Updated>* updated,
                              std::vector<float>* constants) {
  std::vector<std::string> names;
  std::vector<int> slots, constants_of;
  std::vector<bool> every_row;
  TF_RETURN_IF_ERROR(ctx->GetAttr("rules", &names));
  TF_RETURN_IF_ERROR(ctx->GetAttr("slots", &slots));
  TF_RETURN_IF_ERROR(ctx->GetAttr("constants", constants));
  TF_RETURN_IF_ERROR(ctx->GetAttr("constants_of", &constants_of));
  TF_RETURN_IF_ERROR(ctx->GetAttr("every_row", &every_row));
  const size_t n = names.size();
  if (slots.size() != n || constants_of.size() != n || every_row.size() != n) {
    return errors::InvalidArgument("The attributes of rules differ in length.");
  }
  int variable = 0, constant = 0;
  for (size_t i = 0; i < n; ++i) {
    const Rule rule = rule_of(names[i]);
    if (rule == nullptr) {
      return errors::NotFound("The optimizer rule ", names[i], " is not loaded.");
    }
    updated->push_back({rule, variable, slots[i] + 1, constant, every_row[i]});
    variable += slots[i] + 1;
    constant += constants_of[i];
  }
  return tensorflow::Status();
}

class FeaturesKernel : public OpKernel {
 public:
  explicit FeaturesKernel(OpKernelConstruction* ctx) : OpKernel(ctx) {
    OP_REQUIRES_OK(ctx, ctx->GetAttr("forms", &forms_));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("combiners", &combiners_));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("limits", &limits_));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("weighted", &weighted_));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("owners", &owners_));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("table_of", &table_of_));
    const size_t n = forms_.size();
    OP_REQUIRES(ctx,
                combiners_.size() == n && limits_.size() == n && weighted_.size() == n &&
                    owners_.size() == n && table_of_.size() == n,
                errors::InvalidArgument("The attributes of features differ in length."));
  }

 protected:
  tensorflow::Status read(OpKernelContext* ctx, std::vector<Feature>* features) const {
    OpInputList ids, places, shapes, weights;
    TF_RETURN_IF_ERROR(ctx->input_list("ids", &ids));
    TF_RETURN_IF_ERROR(ctx->input_list("places", &places));
    TF_RETURN_IF_ERROR(ctx->input_list("shapes", &shapes));
    TF_RETURN_IF_ERROR(ctx->input_list("weights", &weights));
    int next_place = 0, next_weights = 0;
    for (int i = 0; i < ids.size(); ++i) {
      const Tensor& one = ids[i];
      Feature f{};
      f.wide = one.dtype() == tensorflow::DT_INT64;
      f.ids = one.tensor_data().data();
      f.form = static_cast<Form>(forms_[i]);
      f.combiner = static_cast<Combiner>(combiners_[i]);
      f.limit = limits_[i];
      f.count = one.NumElements();
      f.stride = 1;
      f.width = 1;
      bool fits = true;
      if (f.form == kPlaces) {
        const Tensor& place = places[next_place];
        fits = place.dims() >= 1 && place.dim_size(0) == f.count &&
               (place.dims() == 1 || (place.dims() == 2 && place.dim_size(1) == 2)) &&
               shapes[next_place].NumElements() >= 1;
        if (fits) {
          f.places = place.flat<tensorflow::int64>().data();
          f.stride = place.dims();
          const auto shape = shapes[next_place].flat<tensorflow::int64>();
          f.batch = shape(0);
          f.positions = shape.size() > 1 ? shape(1) : 0;
          fits = shape.size() == f.stride;
          ++next_place;
        }
      } else {
        fits = one.dims() >= 1;
        f.batch = fits ? one.dim_size(0) : 0;
        if (fits && f.form == kDense) f.width = one.dims() == 2 ? one.dim_size(1) : 1;
        fits = fits && f.count == f.batch * f.width;
      }
      if (weighted_[i]) {
        const Tensor& weight = weights[next_weights++];
        fits = fits && weight.NumElements() == f.count && f.form != kDense;
        f.weights = weight.flat<float>().data();
      }
      if (!fits || f.batch < 0) {
        return errors::InvalidArgument(owners_[i], ": the shapes of its ids, places, weights ",
                                       "and batch do not match.");
      }
      features->push_back(f);
    }
    return tensorflow::Status();
  }

  // Groups the numbers of features by their tables.
  tensorflow::Status by_table(int tables) {
    features_of_.resize(tables);
    for (size_t i = 0; i < table_of_.size(); ++i) {
      if (table_of_[i] < 0 || table_of_[i] >= tables) {
        return errors::InvalidArgument(owners_[i], ": there is no table ", table_of_[i], ".");
      }
      features_of_[table_of_[i]].push_back(i);
    }
    return tensorflow::Status();
  }

  // Allocates output i for the activations of feature i, and appends its address to `outputs`.
  tensorflow::Status allocate(OpKernelContext* ctx, int i, const Feature& f, int64_t columns,
                              std::vector<float*>* outputs) const {
    TensorShape shape({f.batch});
    if (f.limit) shape.AddDim(f.limit);
    shape.AddDim(columns);
    Tensor* out;
    TF_RETURN_IF_ERROR(ctx->allocate_output(i, shape, &out));
    outputs->push_back(out->flat<float>().data());
    return tensorflow::Status();
  }

  tensorflow::Status check_gradient(const Tensor& gradient, int i, const Feature& f,
                                    int64_t columns) const {
    if (gradient.NumElements() == f.segments() * columns) return tensorflow::Status();
    return errors::InvalidArgument(owners_[i], ": its gradient has another size than its ",
                                   "activation: ", gradient.shape().DebugString());
  }

  static int lookup_unsorted(const Feature& f, const float* table, int64_t rows, int64_t columns,
                             float* out) {
    std::vector<float> norms(f.batch + 1);  // Never empty, because null means sorted ids.
    return kernels().lookup_unsorted(&f, table, rows, columns, norms.data(), out);
  }

  // Returns the error for a kernel's result on a table of `vocabulary` rows. `IdsAreGood` finds bad
  // features first, unless a graph omits it.
  tensorflow::Status explain(int result, int table, const std::vector<Feature>& features,
                             int64_t vocabulary) const {
    if (result == kGood) return tensorflow::Status();
    std::string owner;
    for (size_t i = 0; i < features.size(); ++i) {
      if (table_of_[i] != table) continue;
      const Feature& f = features[i];
      owner = owners_[i];
      for (int64_t j = 0; j < f.count; ++j) {
        const int64_t id =
            f.wide ? static_cast<const int64_t*>(f.ids)[j] : static_cast<const int32_t*>(f.ids)[j];
        if ((id < 0 && !(id == -1 && f.form == kDense)) || id >= vocabulary) {
          return errors::InvalidArgument(owner, ": id ", id, " is outside [0, ", vocabulary, ").");
        }
      }
      if (f.form == kPlaces && !kernels().places_in_range(&f)) {
        return errors::InvalidArgument(owner, ": sparse indices are outside the dense shape.");
      }
    }
    return errors::InvalidArgument(owner, ": its table has more ids in one batch than the native ",
                                   "kernels can count; set ESTIMATOR_EMB_NATIVE=0.");
  }

  std::vector<int> forms_, combiners_, limits_, table_of_;
  std::vector<bool> weighted_;
  std::vector<std::string> owners_;
  std::vector<std::vector<int>> features_of_;  // By table, after `by_table`.
};

// The messages between trainers and parameter servers. A step of the tables of a cluster is
//
//   trainer              each server          trainer                each server
//   Route -> message     ShardsLookup         Combine -> activations
//                        -> values            RowGradients -> sums   ShardsUpdate
//
// A message is int32. It has the number of the batch's rows in each shard of the server, then these
// rows, shard by shard. Values are the values of the rows in that order. Sums are the learning rate
// of each shard, then the gradient of each row. `Message` also has the start of each shard's part.
struct Message {
  const int32_t* sizes = nullptr;
  const int32_t* rows = nullptr;
  std::vector<int64_t> starts;  // Of each shard's rows, then the end of the last shard's rows.

  tensorflow::Status read(const Tensor& tensor, int shards) {
    const int64_t length = tensor.NumElements();
    sizes = reinterpret_cast<const int32_t*>(tensor.tensor_data().data());
    rows = sizes + shards;
    starts.assign(1, 0);
    for (int i = 0; i < shards && shards <= length; ++i) {
      if (sizes[i] < 0) break;
      starts.push_back(starts.back() + sizes[i]);
    }
    if (static_cast<int>(starts.size()) != shards + 1 || starts.back() + shards != length) {
      return errors::InvalidArgument("A message of ", length, " numbers does not hold rows of ",
                                     shards, " shards.");
    }
    return tensorflow::Status();
  }
};

// These do not check that a tensor is aligned: tensors from another process may not be.
const float* floats(const Tensor& tensor) {
  return reinterpret_cast<const float*>(tensor.tensor_data().data());
}

float* floats(Tensor* tensor) {
  return reinterpret_cast<float*>(const_cast<char*>(tensor->tensor_data().data()));
}

}  // namespace
}  // namespace estimator_emb
