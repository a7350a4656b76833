// The ops that run in the process with the shards of tables: a parameter server, or this process.

#include <algorithm>
#include <string>
#include <vector>

#include "ops.h"

namespace estimator_emb {
namespace {

REGISTER_OP("HostTablesServes")
    .Input("sources: string")  // The digest of the sources that the asking process runs.
    .Attr("rules: list(string)")
    .Output("obstacle: string")
    .SetIsStateful()
    .SetShapeFn(tensorflow::shape_inference::ScalarShape)
    .Doc("Why this process cannot serve tables of these rules; empty if it can.");

class Serves : public OpKernel {
 public:
  explicit Serves(OpKernelConstruction* ctx) : OpKernel(ctx) {
    OP_REQUIRES_OK(ctx, ctx->GetAttr("rules", &rules_));
  }

  void Compute(OpKernelContext* ctx) override {
    Tensor* out;
    OP_REQUIRES_OK(ctx, ctx->allocate_output(0, TensorShape({}), &out));
    auto& obstacle = out->scalar<tensorflow::tstring>()();
    if (std::string(ctx->input(0).scalar<tensorflow::tstring>()()) != ESTIMATOR_EMB_SOURCES) {
      obstacle = "it runs another version of the native kernels";
      return;
    }
    for (const std::string& name : rules_) {
      if (rule_of(name) == nullptr) {
        obstacle = "it has not loaded the optimizers of these tables";
        return;
      }
    }
    obstacle = "";
  }

 private:
  std::vector<std::string> rules_;
};
REGISTER_KERNEL_BUILDER(Name("HostTablesServes").Device(tensorflow::DEVICE_CPU), Serves);

tensorflow::Status no_such_row(const OpInputList& handles, int variable) {
  return errors::InvalidArgument("A worker asked for a row that ",
                                 handles[variable].flat<tensorflow::ResourceHandle>()(0).name(),
                                 " does not have.");
}

REGISTER_OP("HostShardsLookup")
    .Input("tables: T * resource")
    .Attr("T: int >= 1")
    .Input("message: int32")
    .Output("values: float32")
    .SetIsStateful()
    .SetShapeFn(tensorflow::shape_inference::UnknownShape)
    .Doc("The rows that a message names, one after the other.");

class ShardsLookup : public OpKernel {
 public:
  explicit ShardsLookup(OpKernelConstruction* ctx) : OpKernel(ctx) {}

  void Compute(OpKernelContext* ctx) override {
    OpInputList handles;
    OP_REQUIRES_OK(ctx, ctx->input_list("tables", &handles));
    const Tensor* given;
    OP_REQUIRES_OK(ctx, ctx->input("message", &given));
    const int shards = handles.size();
    Message message;
    OP_REQUIRES_OK(ctx, message.read(*given, shards));
    Variables tables(/*write=*/false);
    OP_REQUIRES_OK(ctx, tables.lock(ctx, handles));
    std::vector<int64_t> starts;  // Of the values of each shard.
    int64_t length = 0;
    for (int shard = 0; shard < shards; ++shard) {
      starts.push_back(length);
      length += message.sizes[shard] * tables.columns(shard);
    }
    Tensor* out;
    OP_REQUIRES_OK(ctx, ctx->allocate_output(0, TensorShape({length}), &out));
    float* const values = out->flat<float>().data();
    const std::vector<Part> parts = parts_of(message.sizes, shards, threads_of(ctx));
    std::atomic<int> unfit{-1};
    run_all(ctx, parts.size(), [&](int i) {
      const Part& part = parts[i];
      Feature rows{};
      rows.ids = message.rows + message.starts[part.of];
      rows.count = rows.batch = message.sizes[part.of];
      rows.stride = rows.width = 1;
      if (kernels().lookup(&rows, tables.data(part.of), tables.rows(part.of),
                           tables.columns(part.of), part.begin, part.end, part.begin, part.end,
                           values + starts[part.of]) != kGood) {
        unfit = part.of;
      }
    });
    if (unfit >= 0) OP_REQUIRES_OK(ctx, no_such_row(handles, unfit));
  }
};
REGISTER_KERNEL_BUILDER(Name("HostShardsLookup").Device(tensorflow::DEVICE_CPU), ShardsLookup);

REGISTER_OP("HostShardsUpdate")
    .Input("variables: V * resource")  // Per shard: weights, then slots.
    .Attr("V: int >= 1")
    .Input("message: int32")
    .Input("sums: float32")
    .ESTIMATOR_EMB_RULES.SetIsStateful()
    .SetShapeFn(tensorflow::shape_inference::NoOutputs)
    .Doc("One optimizer step on the rows that a message names.");

class ShardsUpdate : public OpKernel {
 public:
  explicit ShardsUpdate(OpKernelConstruction* ctx) : OpKernel(ctx) {
    OP_REQUIRES_OK(ctx, read_rules(ctx, &shards_, &constants_));
  }

  void Compute(OpKernelContext* ctx) override {
    OpInputList handles;
    OP_REQUIRES_OK(ctx, ctx->input_list("variables", &handles));
    const Tensor *given, *sums;
    OP_REQUIRES_OK(ctx, ctx->input("message", &given));
    OP_REQUIRES_OK(ctx, ctx->input("sums", &sums));
    const int shards = shards_.size();
    Message message;
    OP_REQUIRES_OK(ctx, message.read(*given, shards));
    Variables variables(/*write=*/true);
    OP_REQUIRES_OK(ctx, variables.lock(ctx, handles));
    std::vector<std::vector<float*>> data(shards);
    std::vector<int64_t> starts, sizes;
    int64_t length = shards;
    for (int shard = 0; shard < shards; ++shard) {
      const int first = shards_[shard].variable;
      OP_REQUIRES_OK(ctx, variables.data_of(first, shards_[shard].variables, &data[shard]));
      const uint64_t last = variables.rows(first);
      const int32_t* const rows = message.rows + message.starts[shard];
      for (int64_t k = 0; k < message.sizes[shard]; ++k) {
        // Checks all rows before anything is written.
        if (static_cast<uint64_t>(static_cast<int64_t>(rows[k])) >= last) {
          OP_REQUIRES_OK(ctx, no_such_row(handles, first));
        }
      }
      starts.push_back(length);
      length += message.sizes[shard] * variables.columns(first);
      sizes.push_back(shards_[shard].every_row ? variables.rows(first) : message.sizes[shard]);
    }
    OP_REQUIRES(ctx, sums->NumElements() == length,
                errors::InvalidArgument("A worker sent ", sums->NumElements(),
                                        " rates and gradients, but its rows need ", length, "."));
    const float* const rates = floats(*sums);
    const std::vector<Part> parts = parts_of(sizes.data(), shards, threads_of(ctx));
    run_all(ctx, parts.size(), [&](int i) {
      const Part& part = parts[i];
      const Updated& shard = shards_[part.of];
      const bool every_row = shard.every_row;
      const int64_t columns = variables.columns(shard.variable);
      const int64_t named = message.sizes[part.of];
      const int64_t begin = every_row ? 0 : part.begin, end = every_row ? named : part.end;
      const int32_t* const ids = message.rows + message.starts[part.of];
      // Keys, then a sum of gradients.
      auto* const keys = static_cast<uint64_t*>(
          scratch_of_thread(sizeof(uint64_t) * (end - begin) + sizeof(float) * columns));
      const Source source{rates + starts[part.of], nullptr, nullptr, 1};
      Rows rows{};
      for (int64_t k = begin; k < end; ++k) {
        if (every_row && (ids[k] < part.begin || ids[k] >= part.end)) continue;
        keys[rows.count++] = static_cast<uint64_t>(ids[k]) << 32 | k;
      }
      if (every_row) {
        std::sort(keys, keys + rows.count);
        rows.first = part.begin;
        rows.last = part.end;
      }
      rows.cores = 1;
      rows.keys = keys;
      rows.payload_bits = 31;
      rows.sources = &source;
      rows.single = true;
      rows.dimension = columns;
      rows.variables = data[part.of].data();
      rows.constants = constants_.data() + shard.constant;
      rows.learning_rate = rates[part.of];
      rows.scratch = reinterpret_cast<float*>(keys + (end - begin));
      shard.rule(&rows);
    });
  }

 private:
  std::vector<Updated> shards_;
  std::vector<float> constants_;
};
REGISTER_KERNEL_BUILDER(Name("HostShardsUpdate").Device(tensorflow::DEVICE_CPU), ShardsUpdate);

}  // namespace
}  // namespace estimator_emb
