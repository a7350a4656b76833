// The parts of TensorFlow's runtime that the ops use: its threads, and variables that they lock.

#pragma once

#ifdef __linux__
#include <sys/mman.h>
#endif

#include <algorithm>
#include <atomic>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/resource_mgr.h"
#include "tensorflow/core/framework/resource_var.h"
#include "tensorflow/core/lib/core/threadpool.h"

namespace estimator_emb {
namespace {

using tensorflow::OpInputList;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;
using tensorflow::Var;
namespace errors = tensorflow::errors;

// Runs `task` for 0 to count - 1, on the caller's thread and on others that are free.
//
// It asks the pool that runs ops for helpers, because that pool mostly has a thread awake that is
// looking for work. Threads of the pool for parts of ops must be woken first, on a core that may be
// busy. If no helper came in the last call (the pool may have a single thread), it asks both pools.
void run_all(OpKernelContext* ctx, int count, const std::function<void(int)>& task) {
  struct Shared {
    std::function<void(int)> task;
    int count, most_helpers;
    std::thread::id caller;
    std::atomic<int> next{0}, done{0}, helpers{0};
    tensorflow::mutex mu;
    tensorflow::condition_variable all_done;

    void help() {
      // A pool without threads runs a task at once, on the caller's thread.
      if (std::this_thread::get_id() != caller && helpers.fetch_add(1) < most_helpers) work();
    }

    void work() {
      for (int i; (i = next.fetch_add(1)) < count;) {
        task(i);
        if (done.fetch_add(1) + 1 == count) {
          tensorflow::mutex_lock lock(mu);
          all_done.notify_all();
        }
      }
    }
  };
  static std::atomic<bool> none_came{false};
  auto* workers = ctx->device()->tensorflow_cpu_worker_threads();
  const int helpers = std::min(workers->num_threads, count) - 1;
  if (helpers <= 0) {
    for (int i = 0; i < count; ++i) task(i);
    return;
  }
  // A helper may start after all is done, and keeps `shared` alive until then.
  auto shared = std::make_shared<Shared>();
  shared->task = task;
  shared->count = count;
  shared->most_helpers = helpers;
  shared->caller = std::this_thread::get_id();
  const auto* const ops_pool = ctx->runner();
  const bool ask_workers = ops_pool == nullptr || none_came.load();
  for (int i = 0; i < helpers; ++i) {
    if (ops_pool != nullptr) (*ops_pool)([shared] { shared->help(); });
    if (ask_workers) workers->workers->Schedule([shared] { shared->help(); });
  }
  shared->work();
  {
    tensorflow::mutex_lock lock(shared->mu);
    while (shared->done.load() < count) shared->all_done.wait(lock);
  }
  none_came = shared->helpers.load() == 0;
}

int threads_of(OpKernelContext* ctx) {
  return ctx->device()->tensorflow_cpu_worker_threads()->num_threads;
}

// Part `number` of `parts` of job `of`: [begin, end) of the job's size.
struct Part {
  int64_t size() const { return end - begin; }
  int of, number, parts;
  int64_t begin, end;
};

// Divides `count` jobs into parts, largest first, so that threads get about the same amount.
template <typename Size>
std::vector<Part> parts_of(const Size* sizes, int count, int threads) {
  int64_t total = 0;
  for (int i = 0; i < count; ++i) total += sizes[i];
  const int64_t fair = total / threads + 1;
  std::vector<Part> all;
  for (int i = 0; i < count; ++i) {
    const int64_t size = sizes[i];
    const int parts = (size + fair - 1) / fair;
    for (int64_t k = 0; k < parts; ++k) {
      all.push_back({i, static_cast<int>(k), parts, size * k / parts, size * (k + 1) / parts});
    }
  }
  std::stable_sort(all.begin(), all.end(),
                   [](const Part& a, const Part& b) { return a.size() > b.size(); });
  return all;
}

// Memory that a thread keeps from one task to the next.
void* scratch_of_thread(int64_t bytes) {
  static thread_local std::vector<uint64_t> scratch;
  const size_t words = static_cast<size_t>(bytes + 7) / 8;
  if (scratch.size() < words) {
    scratch.clear();
    scratch.resize(words);
  }
  return scratch.data();
}

// Asks for large pages under a table, so that random reads of rows seldom miss the TLB. Some
// systems grant large pages on demand (Linux, transparent_hugepage=madvise).
void use_large_pages(const Tensor& tensor) {
#ifdef MADV_HUGEPAGE
  constexpr uintptr_t kPage = 2 << 20;
#ifndef MADV_COLLAPSE
  constexpr int MADV_COLLAPSE = 25;  // Since Linux 6.1. It acts at once, not some time later.
#endif
  // Takes pages if the table has half of the page or more. TensorFlow puts tables next to each
  // other, and many are so small that a third of all pages contain two tables.
  const auto nearest = [](uintptr_t address) { return (address + kPage / 2) / kPage * kPage; };
  const auto data = tensor.tensor_data();
  if (data.size() < kPage / 2) return;
  const uintptr_t begin = nearest(reinterpret_cast<uintptr_t>(data.data()));
  const uintptr_t end = nearest(reinterpret_cast<uintptr_t>(data.data()) + data.size());
  // If these calls fail, pages stay unchanged.
  for (int advice : {MADV_HUGEPAGE, MADV_COLLAPSE}) {
    (void)madvise(reinterpret_cast<void*>(begin), end - begin, advice);
  }
#endif
}

// Locks variables against writes (shared) or against all access, in the order of their addresses.
class Variables {
 public:
  explicit Variables(bool write) : write_(write) {}
  Variables(const Variables&) = delete;
  ~Variables() { unlock(); }

  tensorflow::Status lock(OpKernelContext* ctx, const OpInputList& handles) {
    for (int i = 0; i < handles.size(); ++i) {
      tensorflow::core::RefCountPtr<Var> variable;
      const auto& handle = handles[i].flat<tensorflow::ResourceHandle>()(0);
      TF_RETURN_IF_ERROR(tensorflow::LookupResource(ctx, handle, &variable));
      variables_.push_back(std::move(variable));
    }
    std::vector<tensorflow::mutex*> all;
    for (const auto& variable : variables_) all.push_back(variable->mu());
    std::sort(all.begin(), all.end());
    all.erase(std::unique(all.begin(), all.end()), all.end());
    do {
      unlock();
      for (const auto& variable : variables_) TF_RETURN_IF_ERROR(own_buffer(ctx, variable.get()));
      for (auto* mu : all) write_ ? mu->lock() : mu->lock_shared();
      locked_ = all;
      // Meanwhile a saver in another thread may have begun to share a buffer.
    } while (write_ && !owned());
    for (int i = 0; i < handles.size(); ++i) {
      const Tensor& tensor = *variables_[i]->tensor();
      if (!variables_[i]->is_initialized || !tensor.IsInitialized()) {
        return errors::FailedPrecondition("Embedding variable ",
                                          handles[i].flat<tensorflow::ResourceHandle>()(0).name(),
                                          " is not initialized.");
      }
      if (tensor.dtype() != tensorflow::DT_FLOAT || tensor.dims() != 2) {
        return errors::InvalidArgument("An embedding variable must be a float32 matrix; got ",
                                       tensor.DebugString());
      }
    }
    return tensorflow::Status();
  }

  // Appends the data of `count` variables from `first` on. They must have the same shape.
  tensorflow::Status data_of(int first, int count, std::vector<float*>* data) const {
    for (int i = first; i < first + count; ++i) {
      if (rows(i) != rows(first) || columns(i) != columns(first)) {
        return errors::InvalidArgument("A slot has another shape than its table.");
      }
      data->push_back(this->data(i));
    }
    return tensorflow::Status();
  }

  int64_t rows(int i) const { return variables_[i]->tensor()->dim_size(0); }
  int64_t columns(int i) const { return variables_[i]->tensor()->dim_size(1); }
  float* data(int i) const { return variables_[i]->tensor()->flat<float>().data(); }

 private:
  void unlock() {
    for (auto* mu : locked_) write_ ? mu->unlock() : mu->unlock_shared();
    locked_.clear();
  }

  bool owned() const {
    return std::all_of(variables_.begin(), variables_.end(),
                       [](const auto& one) { return one->copy_on_read_mode.load(); });
  }

  // An update needs a buffer that no tensor shares, now or later, so reads must copy it.
  tensorflow::Status own_buffer(OpKernelContext* ctx, Var* variable) const {
    if (variable->copy_on_read_mode.load()) return tensorflow::Status();
    tensorflow::mutex_lock lock(*variable->mu());
    Tensor* const tensor = variable->tensor();
    if (!variable->copy_on_read_mode.load() && tensor->IsInitialized() &&
        !tensor->RefCountIsOne()) {
      if (!write_) return tensorflow::Status();
      Tensor copy;
      TF_RETURN_IF_ERROR(ctx->allocate_temp(tensor->dtype(), tensor->shape(), &copy));
      const auto from = tensor->tensor_data();
      memcpy(const_cast<char*>(copy.tensor_data().data()), from.data(), from.size());
      *tensor = copy;
    }
    use_large_pages(*tensor);
    variable->copy_on_read_mode.store(true);
    return tensorflow::Status();
  }

  const bool write_;
  std::vector<tensorflow::core::RefCountPtr<Var>> variables_;
  std::vector<tensorflow::mutex*> locked_;
};

}  // namespace
}  // namespace estimator_emb
