// The ops of a trainer with sharded tables. They convert between the ids of a batch and the rows of
// all servers.

#include <string.h>

#include <algorithm>
#include <vector>

#include "ops.h"

namespace estimator_emb {
namespace {

using tensorflow::int64;

// The servers of the tables' shards, table by table.
#define ESTIMATOR_EMB_SHARDS \
  Attr("S: int >= 1").Attr("shards_of: list(int)").Attr("server_of: list(int)")

class ShardedKernel : public FeaturesKernel {
 public:
  explicit ShardedKernel(OpKernelConstruction* ctx) : FeaturesKernel(ctx) {
    OP_REQUIRES_OK(ctx, ctx->GetAttr("S", &servers_));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("shards_of", &shards_of_));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("server_of", &server_of_));
    shards_on_.assign(servers_, 0);
    size_t next = 0;
    for (int count : shards_of_) {
      first_shard_.push_back(next);
      next += count;
    }
    OP_REQUIRES(ctx, next == server_of_.size(),
                errors::InvalidArgument("The attributes of shards differ in length."));
    for (int server : server_of_) {
      OP_REQUIRES(ctx, server >= 0 && server < servers_,
                  errors::InvalidArgument("There is no server ", server, "."));
      number_on_.push_back(shards_on_[server]++);
    }
    OP_REQUIRES_OK(ctx, by_table(tables()));
  }

 protected:
  int tables() const { return shards_of_.size(); }
  int shards() const { return server_of_.size(); }

  int servers_;
  std::vector<int> shards_of_, server_of_;
  std::vector<int> first_shard_;  // Of each table.
  std::vector<int> shards_on_;    // The number of shards on each server.
  std::vector<int> number_on_;    // Of each shard, among the shards of its server.
};

REGISTER_OP("HostTablesRoute")
    .ESTIMATOR_EMB_FEATURES.ESTIMATOR_EMB_SHARDS.Attr("ends: list(int)")
    .Attr("F: int >= 1")
    .Output("messages: S * int32")
    .Output("positions: F * int32")
    .SetShapeFn(tensorflow::shape_inference::UnknownShape)
    .Doc(
        "The distinct rows of each shard, as a message to each server. Positions are ids among the "
        "rows of their table, those of its first shard first.");

class Route : public ShardedKernel {
 public:
  explicit Route(OpKernelConstruction* ctx) : ShardedKernel(ctx) {
    OP_REQUIRES_OK(ctx, ctx->GetAttr("ends", &ends_));  // Of the ids of each shard.
    OP_REQUIRES(ctx, ends_.size() == server_of_.size(),
                errors::InvalidArgument("The attributes of shards differ in length."));
  }

  void Compute(OpKernelContext* ctx) override {
    std::vector<Feature> features;
    OP_REQUIRES_OK(ctx, read(ctx, &features));
    OpInputList ids;
    OP_REQUIRES_OK(ctx, ctx->input_list("ids", &ids));
    std::vector<int32_t*> positions;
    for (size_t i = 0; i < features.size(); ++i) {
      Tensor* out;
      OP_REQUIRES_OK(ctx, ctx->allocate_output(servers_ + i, ids[i].shape(), &out));
      positions.push_back(out->flat<int32_t>().data());
    }
    std::vector<std::vector<int32_t>> rows(shards());
    std::vector<std::atomic<int>> results(features.size());
    run_all(ctx, tables(), [&](int table) {
      Rows found(this, table, features);
      for (int i : features_of_[table]) {
        const Feature& f = features[i];
        const Result result =
            f.wide ? found.add<int64_t>(f, positions[i]) : found.add<int32_t>(f, positions[i]);
        if (result != kGood) {
          results[i] = result;
          return;
        }
      }
      found.sort(&rows);
      for (int i : features_of_[table]) found.place(features[i].count, positions[i]);
    });
    for (size_t i = 0; i < features.size(); ++i) {
      const int table = table_of_[i];
      const int64_t vocabulary = ends_[first_shard_[table] + shards_of_[table] - 1];
      OP_REQUIRES_OK(ctx, explain(results[i], table, features, vocabulary));
    }
    for (int server = 0; server < servers_; ++server) {
      int64_t length = shards_on_[server];
      for (int shard = 0; shard < shards(); ++shard) {
        if (server_of_[shard] == server) length += rows[shard].size();
      }
      Tensor* out;
      OP_REQUIRES_OK(ctx, ctx->allocate_output(server, TensorShape({length}), &out));
      int32_t* sizes = out->flat<int32_t>().data();
      int32_t* to = sizes + shards_on_[server];
      for (int shard = 0; shard < shards(); ++shard) {
        if (server_of_[shard] != server) continue;
        *sizes++ = rows[shard].size();
        to = std::copy(rows[shard].begin(), rows[shard].end(), to);
      }
    }
  }

 private:
  // The distinct rows of one table.
  class Rows {
   public:
    Rows(const Route* op, int table, const std::vector<Feature>& features)
        : ends_(op->ends_.data() + op->first_shard_[table]),
          shards_(op->shards_of_[table]),
          first_(op->first_shard_[table]) {
      int64_t count = 0;
      for (int i : op->features_of_[table]) count += features[i].count;
      bits_ = 4;
      while ((int64_t{1} << bits_) < 2 * count) ++bits_;
      slots_.assign(int64_t{1} << bits_, 0);
      ids_.reserve(count);
    }

    // Collects the rows of a feature. Until `place` is called, positions number the distinct rows
    // in order of first occurrence. Ids that are not looked up get -1 in dense ids, else 0.
    template <typename Id>
    Result add(const Feature& f, int32_t* positions) {
      const Id* const ids = static_cast<const Id*>(f.ids);
      const uint64_t vocabulary = ends_[shards_ - 1];
      for (int64_t j = 0; j < f.count; ++j) {
        const uint64_t id = static_cast<int64_t>(ids[j]);
        if (id >= vocabulary) {
          if (f.form != kDense || ids[j] != -1) return kBadId;
          positions[j] = -1;
        } else if (f.limit && beyond_limit(f, j)) {
          positions[j] = f.form == kDense ? -1 : 0;
        } else {
          positions[j] = position(id);
        }
      }
      return ids_.size() < INT32_MAX ? kGood : kTooMany;
    }

    // Gives each shard its rows.
    void sort(std::vector<std::vector<int32_t>>* rows) {
      moved_.resize(ids_.size());
      if (shards_ == 1) {
        (*rows)[first_].swap(ids_);
        return;
      }
      std::vector<int32_t> owner(ids_.size());
      std::vector<int64_t> starts(shards_ + 1);
      for (size_t k = 0; k < ids_.size(); ++k) {
        const int of = std::upper_bound(ends_, ends_ + shards_, ids_[k]) - ends_;
        owner[k] = of;
        ++starts[of + 1];
      }
      for (int shard = 0; shard < shards_; ++shard) {
        (*rows)[first_ + shard].reserve(starts[shard + 1]);
        starts[shard + 1] += starts[shard];
      }
      for (size_t k = 0; k < ids_.size(); ++k) {
        const int of = owner[k];
        moved_[k] = starts[of]++;
        (*rows)[first_ + of].push_back(ids_[k] - (of ? ends_[of - 1] : 0));
      }
    }

    void place(int64_t count, int32_t* positions) const {
      if (shards_ == 1) return;
      for (int64_t j = 0; j < count; ++j) {
        if (positions[j] >= 0 && !moved_.empty()) positions[j] = moved_[positions[j]];
      }
    }

   private:
    static bool beyond_limit(const Feature& f, int64_t j) {
      if (f.form == kDense) return j % f.width >= f.limit;
      return f.stride == 2 && f.places[2 * j + 1] >= f.limit;
    }

    int32_t position(uint64_t id) {
      uint64_t at = (id * 0x9E3779B97F4A7C15u) >> (64 - bits_);
      const uint64_t mask = slots_.size() - 1;
      while (slots_[at] != 0) {
        if (slots_[at] >> 32 == id) return static_cast<uint32_t>(slots_[at]) - 1;
        at = (at + 1) & mask;
      }
      ids_.push_back(id);
      slots_[at] = id << 32 | ids_.size();
      return ids_.size() - 1;
    }

    const int64* const ends_;
    const int shards_, first_;
    int bits_;
    std::vector<uint64_t> slots_;  // By hash: the id, and its position plus 1. 0 means free.
    std::vector<int32_t> ids_;     // In order of first occurrence.
    std::vector<int32_t> moved_;   // The position of each id among the rows of the table.
  };

  std::vector<int64> ends_;
};
REGISTER_KERNEL_BUILDER(Name("HostTablesRoute").Device(tensorflow::DEVICE_CPU), Route);

// The base of ops that use the rows of all servers. Features have positions instead of ids.
class RoutedKernel : public ShardedKernel {
 public:
  explicit RoutedKernel(OpKernelConstruction* ctx) : ShardedKernel(ctx) {
    OP_REQUIRES_OK(ctx, ctx->GetAttr("dimensions", &dimensions_));
    OP_REQUIRES(ctx, dimensions_.size() == shards_of_.size(),
                errors::InvalidArgument("The attributes of tables differ in length."));
  }

 protected:
  // The positions of each shard's rows in the values or the sums of its server.
  struct Layout {
    std::vector<int64_t> rows;      // The number of rows of each shard.
    std::vector<int64_t> of_table;  // The number of rows of each table.
    std::vector<int64_t> starts;    // Of each shard's rows, in floats, without the server's rates.
    std::vector<int64_t> length;    // Of each server's rows, likewise.
  };

  tensorflow::Status read_layout(OpKernelContext* ctx, Layout* layout) const {
    OpInputList tensors;
    TF_RETURN_IF_ERROR(ctx->input_list("messages", &tensors));
    std::vector<Message> messages(servers_);
    for (int server = 0; server < servers_; ++server) {
      TF_RETURN_IF_ERROR(messages[server].read(tensors[server], shards_on_[server]));
    }
    layout->length.assign(servers_, 0);
    layout->of_table.assign(tables(), 0);
    for (int table = 0; table < tables(); ++table) {
      for (int k = 0; k < shards_of_[table]; ++k) {
        const int shard = first_shard_[table] + k, server = server_of_[shard];
        const int64_t rows = messages[server].sizes[number_on_[shard]];
        layout->rows.push_back(rows);
        layout->of_table[table] += rows;
        layout->starts.push_back(layout->length[server]);
        layout->length[server] += rows * dimensions_[table];
      }
    }
    return tensorflow::Status();
  }

  // Calls `function` for each shard of a table. It passes the shard's server, the start of the
  // shard's rows there, their start among the table's rows, and their number of floats.
  template <typename Function>
  void each_shard(const Layout& layout, int table, Function function) const {
    int64_t at = 0;
    for (int k = 0; k < shards_of_[table]; ++k) {
      const int shard = first_shard_[table] + k;
      const int64_t length = layout.rows[shard] * dimensions_[table];
      function(server_of_[shard], layout.starts[shard], at, length);
      at += length;
    }
  }

  std::vector<int> dimensions_;
};

REGISTER_OP("HostTablesCombine")
    .ESTIMATOR_EMB_FEATURES.ESTIMATOR_EMB_SHARDS.Attr("dimensions: list(int)")
    .Attr("F: int >= 1")
    .Input("messages: S * int32")
    .Input("values: S * float32")
    .Output("activations: F * float32")
    .SetShapeFn(tensorflow::shape_inference::UnknownShape)
    .Doc("The activations of all features, from the rows that the servers have sent.");

class Combine : public RoutedKernel {
 public:
  explicit Combine(OpKernelConstruction* ctx) : RoutedKernel(ctx) {}

  void Compute(OpKernelContext* ctx) override {
    std::vector<Feature> features;
    OP_REQUIRES_OK(ctx, read(ctx, &features));
    Layout layout;
    OP_REQUIRES_OK(ctx, read_layout(ctx, &layout));
    OpInputList values;
    OP_REQUIRES_OK(ctx, ctx->input_list("values", &values));
    for (int server = 0; server < servers_; ++server) {
      OP_REQUIRES(ctx, values[server].NumElements() == layout.length[server],
                  errors::InvalidArgument("A server sent ", values[server].NumElements(),
                                          " numbers instead of ", layout.length[server], "."));
    }
    std::vector<float*> outputs;
    for (size_t i = 0; i < features.size(); ++i) {
      OP_REQUIRES_OK(ctx, allocate(ctx, i, features[i], dimensions_[table_of_[i]], &outputs));
    }
    std::vector<std::atomic<int>> results(features.size());
    run_all(ctx, tables(), [&](int table) {
      const int64_t dimension = dimensions_[table];
      // At least one row, because ids cut off from a sequence name row 0 without reading it.
      const int64_t rows = std::max<int64_t>(layout.of_table[table], 1);
      const float* whole;
      if (shards_of_[table] == 1 && layout.rows[first_shard_[table]] > 0) {
        const int shard = first_shard_[table];
        whole = floats(values[server_of_[shard]]) + layout.starts[shard];
      } else {
        auto* const joined =
            static_cast<float*>(scratch_of_thread(sizeof(float) * rows * dimension));
        each_shard(layout, table, [&](int server, int64_t from, int64_t to, int64_t length) {
          memcpy(joined + to, floats(values[server]) + from, sizeof(float) * length);
        });
        whole = joined;
      }
      for (int i : features_of_[table]) {
        const Feature& f = features[i];
        results[i] =
            kernels().lookup(&f, whole, rows, dimension, 0, f.count, 0, f.segments(), outputs[i]);
        if (results[i] == kUnsorted) {
          results[i] = lookup_unsorted(f, whole, rows, dimension, outputs[i]);
        }
      }
    });
    for (size_t i = 0; i < features.size(); ++i) {
      const int table = table_of_[i];
      OP_REQUIRES_OK(ctx, explain(results[i], table, features, layout.of_table[table]));
    }
  }
};
REGISTER_KERNEL_BUILDER(Name("HostTablesCombine").Device(tensorflow::DEVICE_CPU), Combine);

REGISTER_OP("HostTablesRowGradients")
    .ESTIMATOR_EMB_FEATURES.ESTIMATOR_EMB_SHARDS.Attr("dimensions: list(int)")
    .Attr("F: int >= 1")
    .Input("messages: S * int32")
    .Input("gradients: F * float32")
    .Input("rates: float32")  // [tables]
    .Output("sums: S * float32")
    .SetShapeFn(tensorflow::shape_inference::UnknownShape)
    .Doc("For each server the rates of its shards and the gradients of their rows.");

class RowGradients : public RoutedKernel {
 public:
  explicit RowGradients(OpKernelConstruction* ctx) : RoutedKernel(ctx) {}

  void Compute(OpKernelContext* ctx) override {
    std::vector<Feature> features;
    OP_REQUIRES_OK(ctx, read(ctx, &features));
    Layout layout;
    OP_REQUIRES_OK(ctx, read_layout(ctx, &layout));
    OpInputList gradients;
    OP_REQUIRES_OK(ctx, ctx->input_list("gradients", &gradients));
    const Tensor* rates;
    OP_REQUIRES_OK(ctx, ctx->input("rates", &rates));
    OP_REQUIRES(ctx, rates->NumElements() == tables(),
                errors::InvalidArgument("There must be one rate for each table."));
    for (size_t i = 0; i < features.size(); ++i) {
      OP_REQUIRES_OK(ctx, check_gradient(gradients[i], i, features[i], dimensions_[table_of_[i]]));
    }
    std::vector<float*> sums;
    for (int server = 0; server < servers_; ++server) {
      Tensor* out;
      const TensorShape shape({shards_on_[server] + layout.length[server]});
      OP_REQUIRES_OK(ctx, ctx->allocate_output(server, shape, &out));
      sums.push_back(floats(out) + shards_on_[server]);
    }
    for (int table = 0; table < tables(); ++table) {
      for (int k = 0; k < shards_of_[table]; ++k) {
        const int shard = first_shard_[table] + k, server = server_of_[shard];
        sums[server][number_on_[shard] - shards_on_[server]] = rates->flat<float>()(table);
      }
    }
    std::vector<std::atomic<int>> results(tables());
    run_all(ctx, tables(), [&](int table) {
      std::vector<Feature> of_table;
      std::vector<const float*> given;
      for (int i : features_of_[table]) {
        of_table.push_back(features[i]);
        given.push_back(floats(gradients[i]));
      }
      const int count = of_table.size();
      const int64_t dimension = dimensions_[table], real = layout.of_table[table];
      if (real == 0) return;
      const int64_t bytes =
          (kernels().scratch_bytes(of_table.data(), count, dimension) + 7) / 8 * 8;
      const bool in_place = shards_of_[table] == 1;
      auto* const scratch = static_cast<char*>(
          scratch_of_thread(bytes + (in_place ? 0 : sizeof(float) * real * dimension)));
      const int first = first_shard_[table];
      float* whole = in_place ? sums[server_of_[first]] + layout.starts[first]
                              : reinterpret_cast<float*>(scratch + bytes);
      Rows rows{};
      rows.dimension = dimension;
      rows.variables = &whole;
      rows.cores = 1;
      const Result result = kernels().update(of_table.data(), given.data(), count, real, 0, 1,
                                             kernels().sums, &rows, nullptr, scratch);
      if (result != kGood) results[table] = result;
      if (in_place) return;
      each_shard(layout, table, [&](int server, int64_t to, int64_t from, int64_t length) {
        memcpy(sums[server] + to, whole + from, sizeof(float) * length);
      });
    });
    for (int table = 0; table < tables(); ++table) {
      OP_REQUIRES_OK(ctx, explain(results[table], table, features, layout.of_table[table]));
    }
  }
};
REGISTER_KERNEL_BUILDER(Name("HostTablesRowGradients").Device(tensorflow::DEVICE_CPU),
                        RowGradients);

}  // namespace
}  // namespace estimator_emb
