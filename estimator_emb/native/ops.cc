// The TensorFlow ops over lists of tables. A thread takes a table or a part of a table at a time.
// Sums are in the order of the occurrences, whatever the number of threads. The exception is a
// table with rows that are read in row order: its activations are summed in that order.

#include "ops.h"

#include <algorithm>
#include <unordered_map>

namespace estimator_emb {

namespace {

bool has_avx2() {
#ifdef ESTIMATOR_EMB_X86
  return __builtin_cpu_supports("avx2");
#else
  return false;
#endif
}

// The rules that libraries have registered, by name.
struct Rules {
  tensorflow::mutex mu;
  std::unordered_map<std::string, Rule> by_name;
};

Rules& rules() {
  static Rules* const all = new Rules;
  return *all;
}

// The kernels of the arithmetic library. They are set before a graph can have an op of ours.
const Kernels* the_kernels = nullptr;

}  // namespace

const Kernels& kernels() { return *the_kernels; }

Rule rule_of(const std::string& name) {
  tensorflow::mutex_lock lock(rules().mu);
  const auto found = rules().by_name.find(name);
  return found == rules().by_name.end() ? nullptr : found->second;
}

namespace {

constexpr char kOrders[] = "There must be an order for each table, or none.";

REGISTER_OP("HostTablesIdsAreGood")
    .ESTIMATOR_EMB_FEATURES.Input("others: B * bool")
    .Attr("B: int >= 0")
    .Attr("sizes: list(int)")
    .Attr("most_samples: list(int)")
    .Attr("batch_size: int")  // -1 means any.
    .Output("good: bool")
    .SetShapeFn(tensorflow::shape_inference::ScalarShape)
    .Doc(
        "Whether tensors fit together, ids are in their table and in place, weights finite, "
        "batches equal, and all of `others` true.");

class IdsAreGood : public FeaturesKernel {
 public:
  explicit IdsAreGood(OpKernelConstruction* ctx) : FeaturesKernel(ctx) {
    OP_REQUIRES_OK(ctx, ctx->GetAttr("sizes", &sizes_));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("most_samples", &most_samples_));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("batch_size", &batch_size_));
  }

  void Compute(OpKernelContext* ctx) override {
    std::vector<Feature> features;
    std::atomic<bool> good{read(ctx, &features).ok()};
    OpInputList others;
    OP_REQUIRES_OK(ctx, ctx->input_list("others", &others));
    for (int i = 0; i < others.size(); ++i) {
      if (!others[i].scalar<bool>()()) good = false;
    }
    run_all(ctx, good ? features.size() : 0, [&](int i) {
      const Feature& f = features[i];
      if (f.batch <= 0 || f.batch != features[0].batch || f.batch > most_samples_[i] ||
          (batch_size_ >= 0 && f.batch != batch_size_) || !in_place(f) ||
          !kernels().ids_in_range(f.ids, f.wide, f.count, sizes_[i], f.form == kDense) ||
          (f.weights != nullptr && !kernels().finite(f.weights, f.count))) {
        good = false;
      }
    });
    Tensor* out;
    OP_REQUIRES_OK(ctx, ctx->allocate_output(0, TensorShape({}), &out));
    out->scalar<bool>()() = good;
  }

 private:
  static bool in_place(const Feature& f) {
    if (f.form != kPlaces) return true;
    if (f.positions < 0 || !kernels().places_in_range(&f)) return false;
    if (!f.limit || kernels().places_ascend(&f)) return true;
    // Ids in any order. Two ids at a position of a sequence would be added up.
    std::vector<bool> taken(f.segments());
    for (int64_t j = 0; j < f.count; ++j) {
      int64_t segment = f.places[j * f.stride];
      if (f.stride == 2) {
        if (f.places[2 * j + 1] >= f.limit) continue;
        segment = segment * f.limit + f.places[2 * j + 1];
      }
      if (taken[segment]) return false;
      taken[segment] = true;
    }
    return true;
  }

  std::vector<tensorflow::int64> sizes_, most_samples_;
  tensorflow::int64 batch_size_;
};
REGISTER_KERNEL_BUILDER(Name("HostTablesIdsAreGood").Device(tensorflow::DEVICE_CPU), IdsAreGood);

REGISTER_OP("HostTablesLookup")
    .Input("tables: T * resource")
    .Attr("T: int >= 1")
    .ESTIMATOR_EMB_FEATURES.Output("activations: F * float32")
    .Attr("F: int >= 1")
    .Output("orders: N * uint8")  // Of each table, for its update. May be empty.
    .Attr("N: int >= 0")          // The number of tables, or 0.
    .SetIsStateful()
    .SetShapeFn(tensorflow::shape_inference::UnknownShape)
    .Doc("The activations of all features of all tables.");

class Lookup : public FeaturesKernel {
 public:
  explicit Lookup(OpKernelConstruction* ctx) : FeaturesKernel(ctx) {
    tensorflow::int64 tables, orders;
    OP_REQUIRES_OK(ctx, ctx->GetAttr("T", &tables));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("N", &orders));
    OP_REQUIRES(ctx, orders == 0 || orders == tables, errors::InvalidArgument(kOrders));
    OP_REQUIRES_OK(ctx, by_table(tables));
    if (!orders) features_of_.clear();
  }

  void Compute(OpKernelContext* ctx) override {
    std::vector<Feature> features;
    OP_REQUIRES_OK(ctx, read(ctx, &features));
    OpInputList handles;
    OP_REQUIRES_OK(ctx, ctx->input_list("tables", &handles));
    Variables tables(/*write=*/false);
    OP_REQUIRES_OK(ctx, tables.lock(ctx, handles));

    int64_t total = 0, activations = 0;
    for (size_t i = 0; i < features.size(); ++i) {
      total += features[i].count;
      activations += features[i].segments() * tables.columns(table_of_[i]);
    }
    const int64_t fair = total / threads_of(ctx) + 1;
    std::vector<float*> outputs;
    for (size_t i = 0; i < features.size(); ++i) {
      Feature& f = features[i];
      f.past_cache = activations > kCached;
      OP_REQUIRES_OK(ctx, allocate(ctx, i, f, tables.columns(table_of_[i]), &outputs));
    }
    std::vector<Ordered> ordered;
    std::vector<bool> done(features.size());
    for (size_t t = 0; t < features_of_.size(); ++t) {
      Ordered one{static_cast<int>(t), {}, {}, {}};
      for (int i : features_of_[t]) {
        one.features.push_back(features[i]);
        one.activations.push_back(outputs[i]);
      }
      const bool worthwhile = reads_in_order(one.features, tables.rows(t), tables.columns(t), fair);
      const int64_t bytes =
          worthwhile ? kernels().order_bytes(one.features.data(), one.features.size()) : 0;
      Tensor* order;
      OP_REQUIRES_OK(ctx, ctx->allocate_output(features.size() + t, TensorShape({bytes}), &order));
      if (!worthwhile) continue;
      one.order = order->flat<uint8_t>().data();
      for (int i : features_of_[t]) done[i] = true;
      ordered.push_back(std::move(one));
    }
    std::vector<Chunk> chunks;
    for (size_t i = 0; i < features.size(); ++i) {
      const int64_t parts = std::max<int64_t>(1, (features[i].count + fair - 1) / fair);
      if (!done[i]) divide(features[i], i, parts, &chunks);
    }
    std::vector<std::atomic<int>> results(features.size());
    const int first_chunk = ordered.size();
    run_all(ctx, first_chunk + chunks.size(), [&](int task) {
      if (task < first_chunk) {
        const Ordered& one = ordered[task];
        const int count = one.features.size();
        const int64_t columns = tables.columns(one.table);
        const Result result = kernels().lookup_in_order(
            one.features.data(), count, tables.data(one.table), tables.rows(one.table), columns,
            one.order,
            scratch_of_thread(kernels().scratch_bytes(one.features.data(), count, columns)),
            one.activations.data());
        for (int i : features_of_[one.table]) results[i] = result;
        return;
      }
      const Chunk& chunk = chunks[task - first_chunk];
      const int table = table_of_[chunk.feature];
      const Result result = kernels().lookup(
          &features[chunk.feature], tables.data(table), tables.rows(table), tables.columns(table),
          chunk.begin, chunk.end, chunk.first, chunk.last, outputs[chunk.feature]);
      if (result != kGood) results[chunk.feature] = result;
    });
    for (size_t i = 0; i < features.size(); ++i) {
      int result = results[i];
      const int table = table_of_[i];
      if (result == kUnsorted) {
        result = lookup_unsorted(features[i], tables.data(table), tables.rows(table),
                                 tables.columns(table), outputs[i]);
      }
      OP_REQUIRES_OK(ctx, explain(result, table, features, tables.rows(table)));
    }
  }

 private:
  static constexpr int64_t kCached = 1 << 18;  // About the number of floats in a near cache.

  struct Chunk {
    int feature;
    int64_t begin, end;   // Occurrences.
    int64_t first, last;  // Segments.
  };

  // A table with rows that are read in row order.
  struct Ordered {
    int table;
    std::vector<Feature> features;
    std::vector<float*> activations;
    void* order;
  };

  // Returns whether it is faster to sort the occurrences of a table and read each row once. The
  // update then need not sort. It is faster if samples have several ids, many rows occur, the table
  // exceeds the near cache, and all sums stay in that cache. A single thread does all.
  static bool reads_in_order(const std::vector<Feature>& features, int64_t rows, int64_t columns,
                             int64_t fair) {
    int64_t occurrences = 0, segments = 0;
    for (const Feature& f : features) {
      if (f.limit) return false;
      occurrences += f.count;
      segments += f.segments();
    }
    return occurrences <= fair && occurrences >= 4 * segments && occurrences >= rows / 16 &&
           rows * columns > kCached / 2 && segments * columns <= kCached;
  }

  // Cuts a feature at the borders of samples.
  static void divide(const Feature& f, int index, int64_t parts, std::vector<Chunk>* chunks) {
    const int64_t per_sample = f.limit ? f.limit : 1;
    // If the places of a sequence have stride 1, they are its segments.
    const int64_t per_place = f.stride == 2 ? per_sample : 1;
    int64_t begin = 0, first = 0;
    for (int64_t part = 1; part <= parts; ++part) {
      int64_t end = f.count, last = f.segments();
      if (part < parts && f.form != kPlaces) {
        const int64_t samples = f.batch * part / parts;
        end = samples * f.width;
        last = samples * per_sample;
      } else if (part < parts) {
        end = std::max(f.count * part / parts, begin);
        while (end < f.count &&
               (end == 0 || f.places[end * f.stride] <= f.places[(end - 1) * f.stride])) {
          ++end;
        }
        // A place out of bounds is found by the chunk that contains it.
        const int64_t place = end > 0 ? f.places[(end - 1) * f.stride] : -1;
        if (end < f.count && place >= 0 && place < last / per_place) {
          last = std::max((place + 1) * per_place, first);
        }
      }
      chunks->push_back({index, begin, end, first, last});
      if (end == f.count) break;
      begin = end;
      first = last;
    }
  }
};
REGISTER_KERNEL_BUILDER(Name("HostTablesLookup").Device(tensorflow::DEVICE_CPU), Lookup);

REGISTER_OP("HostTablesUpdate")
    .Input("variables: V * resource")  // For each table its weights, then its slots.
    .Attr("V: int >= 1")
    .Input("rates: float32")  // [tables]
    .ESTIMATOR_EMB_FEATURES.Input("gradients: F * float32")
    .Attr("F: int >= 1")
    .Input("orders: N * uint8")  // From the lookup of the same features.
    .Attr("N: int >= 0")
    // The number of cores that update rows one after the other. 1 sums up gradients.
    .ESTIMATOR_EMB_RULES.Attr("cores: list(int)")
    .SetIsStateful()
    .SetShapeFn(tensorflow::shape_inference::NoOutputs)
    .Doc("One optimizer step on the rows that occur, for all tables.");

class Update : public FeaturesKernel {
 public:
  explicit Update(OpKernelConstruction* ctx) : FeaturesKernel(ctx) {
    OP_REQUIRES_OK(ctx, read_rules(ctx, &tables_, &constants_));
    OP_REQUIRES_OK(ctx, by_table(tables_.size()));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("cores", &cores_));
    tensorflow::int64 orders;
    OP_REQUIRES_OK(ctx, ctx->GetAttr("N", &orders));
    const size_t n = tables_.size();
    OP_REQUIRES(ctx, orders == 0 || orders == static_cast<tensorflow::int64>(n),
                errors::InvalidArgument(kOrders));
    OP_REQUIRES(ctx, cores_.size() == n,
                errors::InvalidArgument("The attributes of tables differ in length."));
    for (size_t t = 0; t < n; ++t) {
      OP_REQUIRES(ctx, !orders || !tables_[t].every_row,
                  errors::InvalidArgument("A table that updates every row takes no order."));
      OP_REQUIRES(ctx, cores_[t] >= 1 && (cores_[t] == 1 || !tables_[t].every_row),
                  errors::InvalidArgument("Several cores cannot update every row."));
    }
  }

  void Compute(OpKernelContext* ctx) override {
    std::vector<Feature> features;
    OP_REQUIRES_OK(ctx, read(ctx, &features));
    OpInputList handles, gradients, orders;
    OP_REQUIRES_OK(ctx, ctx->input_list("variables", &handles));
    OP_REQUIRES_OK(ctx, ctx->input_list("gradients", &gradients));
    OP_REQUIRES_OK(ctx, ctx->input_list("orders", &orders));
    const Tensor* rates;
    OP_REQUIRES_OK(ctx, ctx->input("rates", &rates));
    Variables variables(/*write=*/true);
    OP_REQUIRES_OK(ctx, variables.lock(ctx, handles));

    struct Batch {
      std::vector<Feature> features;
      std::vector<const float*> gradients;
      std::vector<float*> variables;
      const void* order = nullptr;
    };
    std::vector<Batch> batches(tables_.size());
    std::vector<int64_t> counts(tables_.size());  // The amount of work for each table.
    for (size_t t = 0; t < tables_.size(); ++t) {
      Batch& batch = batches[t];
      const Updated& table = tables_[t];
      OP_REQUIRES_OK(ctx, variables.data_of(table.variable, table.variables, &batch.variables));
      for (int i : features_of_[t]) {
        OP_REQUIRES_OK(
            ctx, check_gradient(gradients[i], i, features[i], variables.columns(table.variable)));
        batch.features.push_back(features[i]);
        batch.gradients.push_back(gradients[i].flat<float>().data());
        counts[t] += features[i].count;
      }
      if (orders.size() && orders[t].NumElements()) {
        OP_REQUIRES(ctx,
                    orders[t].NumElements() ==
                        kernels().order_bytes(batch.features.data(), batch.features.size()),
                    errors::InvalidArgument("An order does not match its table's features."));
        batch.order = orders[t].flat<uint8_t>().data();
      }
      if (table.every_row) counts[t] += variables.rows(table.variable);
    }
    const std::vector<Part> parts = parts_of(counts.data(), counts.size(), threads_of(ctx));
    std::vector<std::atomic<int>> results(tables_.size());
    run_all(ctx, parts.size(), [&](int i) {
      const Part& part = parts[i];
      const Updated& table = tables_[part.of];
      const Batch& batch = batches[part.of];
      Rows rows{};
      rows.dimension = variables.columns(table.variable);
      rows.variables = batch.variables.data();
      rows.constants = constants_.data() + table.constant;
      rows.learning_rate = rates->flat<float>()(part.of);
      rows.cores = cores_[part.of];
      rows.last = table.every_row;
      const int count = batch.features.size();
      const Result result = kernels().update(
          batch.features.data(), batch.gradients.data(), count, variables.rows(table.variable),
          part.number, part.parts, table.rule, &rows, batch.order,
          scratch_of_thread(kernels().scratch_bytes(batch.features.data(), count, rows.dimension)));
      if (result != kGood) results[part.of] = result;
    });
    for (size_t t = 0; t < tables_.size(); ++t) {
      OP_REQUIRES_OK(ctx, explain(results[t], t, features, variables.rows(tables_[t].variable)));
    }
  }

 private:
  std::vector<Updated> tables_;
  std::vector<int> cores_;
  std::vector<float> constants_;
};
REGISTER_KERNEL_BUILDER(Name("HostTablesUpdate").Device(tensorflow::DEVICE_CPU), Update);

}  // namespace
}  // namespace estimator_emb

// Takes the kernels of the best instruction set that this machine can run.
ESTIMATOR_EMB_EXPORT void estimator_emb_take_kernels(const void* any, const void* avx2) {
  using namespace estimator_emb;
  const void* const chosen = avx2 != nullptr && has_avx2() ? avx2 : any;
  the_kernels = static_cast<const Kernels*>(chosen);
}

// Registers a rule under a name, for the best instruction set that this machine can run.
ESTIMATOR_EMB_EXPORT void estimator_emb_register_rule(const char* name, void* any, void* avx2) {
  using namespace estimator_emb;
  tensorflow::mutex_lock lock(rules().mu);
  rules().by_name[name] = reinterpret_cast<Rule>(avx2 != nullptr && has_avx2() ? avx2 : any);
}
