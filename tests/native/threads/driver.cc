// Several trainers on the same tables at once, and one who reads them, as sessions in one process
// or workers of a parameter server are. All numbers are whole and the rule is plain descent, so
// that the tables at the end do not depend on the order of the steps.

#include <stdio.h>
#include <stdlib.h>

#include "kernels.h"
#include "runtime.h"

extern "C" {
extern const estimator_emb::Kernels kernels_any;
void rule_any(const estimator_emb::Rows* rows);  // Plain descent.
void estimator_emb_take_kernels(const void* any, const void* avx2);
void estimator_emb_register_rule(const char* name, void* any, void* avx2);
}

// Of the rule.
extern const float kRuleConstants[];
extern const int kRuleConstantsCount;

namespace {

using namespace tensorflow;
using Inputs = OpKernelContext::Inputs;
using Attributes = std::map<std::string, std::any>;

constexpr int kTables = 3, kTrainers = 3, kSteps = 60, kShards = 2;
constexpr int kThreads = 4;  // More than tables, which are then updated in parts.
constexpr int kRows = 60, kBatch = 48, kWidth = 4;
constexpr int kDimensions[kTables] = {5, 8, 16};

void check(bool good, const std::string& what) {
  if (good) return;
  fprintf(stderr, "%s\n", what.c_str());
  exit(1);
}

std::unique_ptr<OpKernel> made(const char* op, const Attributes& attributes) {
  OpKernelConstruction construction(attributes);
  std::unique_ptr<OpKernel> kernel(factories().at(op)(&construction));
  check(construction.status.ok(), construction.status.message());
  return kernel;
}

// The threads of one process: those that run ops, and those for parts of ops.
struct Process {
  thread::ThreadPool workers{kThreads}, ops{kThreads};
  Device device{{kThreads, &workers}};
  Runner runner = [this](std::function<void()> task) { ops.Schedule(std::move(task)); };

  std::vector<Tensor> run(OpKernel* kernel, Inputs inputs, std::vector<DataType> types) {
    OpKernelContext ctx(&device, &runner, std::move(inputs), std::move(types));
    kernel->Compute(&ctx);
    check(ctx.status.ok(), ctx.status.message());
    return ctx.outputs;
  }
};

// A table in one variable or in several, of kRows rows.
struct Table {
  std::vector<ResourceHandle> shards;
  int rows_of_shard;

  Table(int dimension, int number) : shards(number), rows_of_shard(kRows / number) {
    for (ResourceHandle& shard : shards) {
      shard.variable = std::make_shared<Var>();
      *shard.variable->tensor() = Tensor(DT_FLOAT, {rows_of_shard, dimension});
    }
  }
};

// What `ReadVariableOp` does: it shares the buffer, or copies it if the variable asks for that.
Tensor value_of(Var* variable) {
  variable->mu()->lock_shared();
  Tensor value = *variable->tensor();
  if (variable->copy_on_read_mode) {
    Tensor copy(DT_FLOAT, value.shape());
    memcpy(copy.flat<float>().data(), value.flat<float>().data(), value.tensor_data().size());
    value = copy;
  }
  variable->mu()->unlock_shared();
  return value;
}

// A batch, alike for both kinds of step: for each table a feature of one id per sample, one of a
// matrix, and one of places in no order.
struct Batch {
  Inputs inputs;
  std::vector<Tensor> gradients;
  std::vector<std::vector<double>> change;  // What it subtracts from each table.

  explicit Batch(unsigned seed) : change(kTables) {
    const auto number = [&seed](int below) {
      seed = seed * 1664525u + 1013904223u;
      return static_cast<int>((seed >> 16) % below);
    };
    inputs["places"], inputs["shapes"], inputs["weights"];
    for (int t = 0; t < kTables; ++t) {
      change[t].assign(kRows * kDimensions[t], 0);
      for (int form : {0, 1, 2}) {
        const int count = form == 0 ? kBatch : kBatch * kWidth;
        Tensor ids = form == 1 ? Tensor(DT_INT32, {kBatch, kWidth}) : Tensor(DT_INT64, {count});
        Tensor gradient(DT_FLOAT, {kBatch, kDimensions[t]});
        for (int i = 0; i < kBatch * kDimensions[t]; ++i) gradient.flat<float>()(i) = number(5) - 2;
        Tensor places(DT_INT64, {count}), shape(DT_INT64, {1});
        shape.flat<int64>()(0) = kBatch;
        for (int j = 0; j < count; ++j) {
          const int id = number(kRows);
          const int sample = form == 0 ? j : form == 1 ? j / kWidth : number(kBatch);
          places.flat<int64>()(j) = sample;
          form == 1 ? void(ids.flat<int32_t>()(j) = id) : void(ids.flat<int64>()(j) = id);
          for (int i = 0; i < kDimensions[t]; ++i) {
            change[t][id * kDimensions[t] + i] +=
                gradient.flat<float>()(sample * kDimensions[t] + i);
          }
        }
        inputs["ids"].push_back(ids);
        gradients.push_back(gradient);
        if (form != 2) continue;
        inputs["places"].push_back(places);
        inputs["shapes"].push_back(shape);
      }
    }
  }
};

template <typename T>
std::vector<T> joined(std::initializer_list<std::vector<T>> parts) {
  std::vector<T> all;
  for (const auto& part : parts) all.insert(all.end(), part.begin(), part.end());
  return all;
}

constexpr int kFeatures = 3 * kTables;

Attributes of_features() {
  std::vector<int> forms, table_of;
  for (int t = 0; t < kTables; ++t) {
    for (int form : {0, 1, 2}) forms.push_back(form), table_of.push_back(t);
  }
  return {{"forms", forms},
          {"combiners", std::vector<int>(kFeatures, 0)},
          {"limits", std::vector<int>(kFeatures, 0)},
          {"weighted", std::vector<bool>(kFeatures, false)},
          {"owners", std::vector<std::string>(kFeatures, "A feature")},
          {"table_of", table_of}};
}

// Attributes of ops that update `number` variables.
Attributes of_rules(int number) {
  return {{"rules", std::vector<std::string>(number, "descent")},
          {"slots", std::vector<int>(number, 0)},
          {"constants", std::vector<float>(kRuleConstants, kRuleConstants + kRuleConstantsCount)},
          {"constants_of", std::vector<int>(number, 0)},
          {"every_row", std::vector<bool>(number, false)},
          {"cores", std::vector<int>(number, 1)}};
}

Attributes with(Attributes some, const Attributes& more) {
  some.insert(more.begin(), more.end());
  return some;
}

std::vector<Tensor> handles_of(std::vector<Table>& tables) {
  std::vector<Tensor> handles;
  for (Table& table : tables) {
    for (ResourceHandle& shard : table.shards) handles.push_back(Tensor(&shard));
  }
  return handles;
}

Tensor rates() {
  Tensor rates(DT_FLOAT, {kTables});
  for (int t = 0; t < kTables; ++t) rates.flat<float>()(t) = 1;
  return rates;
}

// Tables of this process.
struct Whole {
  std::vector<Table> tables;
  std::unique_ptr<OpKernel> good, lookup, update;

  Whole() {
    for (int dimension : kDimensions) tables.emplace_back(dimension, 1);
    good = made("HostTablesIdsAreGood",
                with(of_features(), {{"sizes", std::vector<int64>(kFeatures, kRows)},
                                     {"most_samples", std::vector<int64>(kFeatures, kBatch)},
                                     {"batch_size", int64{-1}}}));
    lookup =
        made("HostTablesLookup", with(of_features(), {{"T", int64{kTables}}, {"N", int64{0}}}));
    update =
        made("HostTablesUpdate", with(with(of_features(), of_rules(kTables)), {{"N", int64{0}}}));
  }

  void step(Process* process, const Batch& batch) {
    Inputs inputs = batch.inputs;
    inputs["others"], inputs["orders"];
    const auto found = process->run(good.get(), inputs, {DT_BOOL});
    check(found[0].scalar<bool>()(), "The ids are not good.");
    inputs["tables"] = inputs["variables"] = handles_of(tables);
    process->run(lookup.get(), inputs, std::vector<DataType>(kFeatures, DT_FLOAT));
    inputs["rates"] = {rates()};
    inputs["gradients"] = batch.gradients;
    process->run(update.get(), inputs, {});
  }
};

// Tables whose shards are on as many servers, all in this process.
struct Divided {
  std::vector<Table> tables;
  std::unique_ptr<OpKernel> route, combine, row_gradients, lookup, update;

  Divided() {
    std::vector<int> server_of;
    std::vector<int64> ends;
    for (int dimension : kDimensions) {
      tables.emplace_back(dimension, kShards);
      for (int shard = 0; shard < kShards; ++shard) {
        server_of.push_back(shard);
        ends.push_back(kRows / kShards * (shard + 1));
      }
    }
    const Attributes shards =
        with(of_features(), {{"S", kShards},
                             {"shards_of", std::vector<int>(kTables, kShards)},
                             {"server_of", server_of},
                             {"ends", ends},
                             {"dimensions", std::vector<int>(kDimensions, kDimensions + kTables)}});
    route = made("HostTablesRoute", shards);
    combine = made("HostTablesCombine", shards);
    row_gradients = made("HostTablesRowGradients", shards);
    lookup = made("HostShardsLookup", {});
    update = made("HostShardsUpdate", of_rules(kTables));
  }

  std::vector<Tensor> handles_on(int server) {
    std::vector<Tensor> handles;
    for (Table& table : tables) handles.push_back(Tensor(&table.shards[server]));
    return handles;
  }

  void step(Process* process, const Batch& batch) {
    const auto routed = process->run(route.get(), batch.inputs,
                                     std::vector<DataType>(kShards + kFeatures, DT_INT32));
    Inputs inputs = batch.inputs;
    inputs["messages"].assign(routed.begin(), routed.begin() + kShards);
    inputs["ids"].assign(routed.begin() + kShards, routed.end());
    for (int server = 0; server < kShards; ++server) {
      const Inputs asked{{"tables", handles_on(server)}, {"message", {routed[server]}}};
      inputs["values"].push_back(process->run(lookup.get(), asked, {DT_FLOAT})[0]);
    }
    process->run(combine.get(), inputs, std::vector<DataType>(kFeatures, DT_FLOAT));
    inputs["rates"] = {rates()};
    inputs["gradients"] = batch.gradients;
    const auto sums =
        process->run(row_gradients.get(), inputs, std::vector<DataType>(kShards, DT_FLOAT));
    for (int server = 0; server < kShards; ++server) {
      process->run(update.get(),
                   {{"variables", handles_on(server)},
                    {"message", {routed[server]}},
                    {"sums", {sums[server]}}},
                   {});
    }
  }
};

void check_tables(std::vector<Table>& tables, const std::vector<std::vector<double>>& change) {
  for (int t = 0; t < kTables; ++t) {
    for (int i = 0; i < kRows * kDimensions[t]; ++i) {
      const int size = tables[t].rows_of_shard * kDimensions[t];
      Var* const shard = tables[t].shards[i / size].variable.get();
      check(shard->tensor()->flat<float>()(i % size) == -change[t][i], "A table is wrong.");
    }
  }
}

}  // namespace

int main() {
  estimator_emb_take_kernels(&kernels_any, nullptr);
  estimator_emb_register_rule("descent", reinterpret_cast<void*>(rule_any), nullptr);
  Process process;
  Whole whole;
  Divided divided;
  std::vector<std::vector<double>> change;
  for (int dimension : kDimensions) change.emplace_back(kRows * dimension, 0.0);
  std::vector<std::vector<Batch>> batches(kTrainers);
  for (int trainer = 0; trainer < kTrainers; ++trainer) {
    for (int k = 0; k < kSteps; ++k) {
      const Batch& batch = batches[trainer].emplace_back(trainer * kSteps + k);
      for (int t = 0; t < kTables; ++t) {
        for (size_t i = 0; i < change[t].size(); ++i) change[t][i] += batch.change[t][i];
      }
    }
  }
  std::atomic<bool> ends{false};
  std::thread reader([&] {
    float sum = 0;
    while (!ends) {
      for (auto* tables : {&whole.tables, &divided.tables}) {
        for (Table& table : *tables) {
          for (ResourceHandle& shard : table.shards) {
            const Tensor value = value_of(shard.variable.get());
            for (int64_t i = 0; i < value.NumElements(); ++i) sum += value.flat<float>()(i);
          }
        }
      }
    }
    check(sum == sum, "A table is not finite.");
  });
  std::vector<std::thread> trainers;
  for (const auto& own : batches) {
    trainers.emplace_back([&] {
      for (const Batch& batch : own) {
        whole.step(&process, batch);
        divided.step(&process, batch);
      }
    });
  }
  for (std::thread& trainer : trainers) trainer.join();
  ends = true;
  reader.join();
  check_tables(whole.tables, change);
  check_tables(divided.tables, change);
  printf("The tables are right.\n");
}
