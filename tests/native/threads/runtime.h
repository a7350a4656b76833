// As much of TensorFlow's runtime as the ops use, so that all of a program can be compiled for the
// thread sanitizer, which sees no synchronisation in TensorFlow's own libraries. Locks, reference
// counts and pools of threads do here what TensorFlow's do.

#ifndef ESTIMATOR_EMB_TESTS_NATIVE_THREADS_RUNTIME_H_
#define ESTIMATOR_EMB_TESTS_NATIVE_THREADS_RUNTIME_H_

#include <stdint.h>
#include <string.h>

#include <any>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <initializer_list>
#include <map>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <sstream>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace tensorflow {

using int64 = int64_t;
using tstring = std::string;

class Status {
 public:
  Status() = default;
  explicit Status(std::string message) : message_(std::move(message)), ok_(false) {}
  bool ok() const { return ok_; }
  const std::string& message() const { return message_; }

 private:
  std::string message_;
  bool ok_ = true;
};

namespace errors {
template <typename... Parts>
Status InvalidArgument(const Parts&... parts) {
  std::ostringstream text;
  (text << ... << parts);
  return Status(text.str());
}
constexpr auto FailedPrecondition = [](const auto&... parts) { return InvalidArgument(parts...); };
constexpr auto NotFound = FailedPrecondition;
}  // namespace errors

#define TF_RETURN_IF_ERROR(...)                        \
  do {                                                 \
    const ::tensorflow::Status status = (__VA_ARGS__); \
    if (!status.ok()) return status;                   \
  } while (false)
#define OP_REQUIRES_OK(CTX, ...)                       \
  do {                                                 \
    const ::tensorflow::Status status = (__VA_ARGS__); \
    if (!status.ok()) {                                \
      (CTX)->fail(status);                             \
      return;                                          \
    }                                                  \
  } while (false)
#define OP_REQUIRES(CTX, CONDITION, ...) \
  do {                                   \
    if (!(CONDITION)) {                  \
      (CTX)->fail(__VA_ARGS__);          \
      return;                            \
    }                                    \
  } while (false)

class mutex {
 public:
  void lock() { mu_.lock(); }
  void unlock() { mu_.unlock(); }
  void lock_shared() { mu_.lock_shared(); }
  void unlock_shared() { mu_.unlock_shared(); }

 private:
  std::shared_mutex mu_;
};

using mutex_lock = std::unique_lock<mutex>;
using condition_variable = std::condition_variable_any;

enum DataType { DT_FLOAT, DT_INT32, DT_INT64, DT_BOOL, DT_RESOURCE };

inline int64_t size_of(DataType type) { return type == DT_BOOL ? 1 : type == DT_INT64 ? 8 : 4; }

class TensorShape {
 public:
  TensorShape(std::initializer_list<int64_t> sizes) : sizes_(sizes) {}
  void AddDim(int64_t size) { sizes_.push_back(size); }
  int dims() const { return sizes_.size(); }
  int64_t dim_size(int i) const { return sizes_[i]; }
  int64_t num_elements() const {
    int64_t product = 1;
    for (int64_t size : sizes_) product *= size;
    return product;
  }
  std::string DebugString() const { return std::to_string(num_elements()) + " elements"; }

 private:
  std::vector<int64_t> sizes_;
};

template <typename T>
struct Flat {
  T* data() const { return values; }
  int64_t size() const { return count; }
  T& operator()(int64_t i = 0) const { return values[i]; }
  T* values;
  int64_t count;
};

// A reference to memory that counts its references, with the order of accesses that TensorFlow's
// counts have: who finds that a reference is the only one sees what the others did before.
class Buffer {
 public:
  Buffer() = default;
  explicit Buffer(int64_t bytes) : shared_(new Shared(bytes)) {}
  Buffer(const Buffer& other) : shared_(other.shared_) {
    if (shared_ != nullptr) shared_->references.fetch_add(1, std::memory_order_relaxed);
  }
  Buffer(Buffer&& other) : shared_(other.shared_) { other.shared_ = nullptr; }
  Buffer& operator=(Buffer other) {
    std::swap(shared_, other.shared_);
    return *this;
  }
  ~Buffer() {
    if (shared_ != nullptr && shared_->references.fetch_sub(1, std::memory_order_acq_rel) == 1) {
      delete shared_;
    }
  }
  char* data() const { return shared_ == nullptr ? nullptr : shared_->values.get(); }
  bool is_only() const { return shared_->references.load(std::memory_order_acquire) == 1; }

 private:
  struct Shared {
    explicit Shared(int64_t bytes) : values(new char[bytes]()) {}
    std::atomic<int> references{1};
    std::unique_ptr<char[]> values;
  };
  Shared* shared_ = nullptr;
};

class Tensor {
 public:
  Tensor() : shape_({}) {}
  Tensor(DataType type, const TensorShape& shape)
      : type_(type), shape_(shape), buffer_(size_of(type) * shape.num_elements() + 1) {}
  // Of a handle, which must outlive the tensor.
  explicit Tensor(void* handle) : type_(DT_RESOURCE), shape_({}), handle_(handle) {}

  DataType dtype() const { return type_; }
  const TensorShape& shape() const { return shape_; }
  int dims() const { return shape_.dims(); }
  int64_t dim_size(int i) const { return shape_.dim_size(i); }
  int64_t NumElements() const { return shape_.num_elements(); }
  bool IsInitialized() const { return buffer_.data() != nullptr; }
  bool RefCountIsOne() const { return buffer_.is_only(); }
  std::string DebugString() const { return shape_.DebugString(); }
  std::string_view tensor_data() const {
    return {buffer_.data(), static_cast<size_t>(size_of(type_) * NumElements())};
  }
  template <typename T>
  Flat<T> flat() {
    return {static_cast<T*>(data()), NumElements()};
  }
  template <typename T>
  Flat<const T> flat() const {
    return {static_cast<const T*>(data()), NumElements()};
  }
  template <typename T>
  Flat<T> scalar() {
    return flat<T>();
  }
  template <typename T>
  Flat<const T> scalar() const {
    return flat<T>();
  }

 private:
  void* data() const { return handle_ != nullptr ? handle_ : buffer_.data(); }

  DataType type_ = DT_FLOAT;
  TensorShape shape_;
  Buffer buffer_;
  void* handle_ = nullptr;
};

class Var {
 public:
  mutex* mu() { return &mu_; }
  Tensor* tensor() { return &tensor_; }
  std::atomic<bool> copy_on_read_mode{false};
  bool is_initialized = true;

 private:
  mutex mu_;
  Tensor tensor_;
};

struct ResourceHandle {
  const char* name() const { return "variable"; }
  std::shared_ptr<Var> variable;
};

namespace core {
template <typename T>
using RefCountPtr = std::shared_ptr<T>;
}  // namespace core

namespace thread {
// Threads that run what they are given, in any order.
class ThreadPool {
 public:
  explicit ThreadPool(int threads) {
    for (int i = 0; i < threads; ++i) threads_.emplace_back([this] { run(); });
  }
  ~ThreadPool() {
    {
      std::lock_guard<std::mutex> lock(mu_);
      ends_ = true;
    }
    given_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }
  void Schedule(std::function<void()> task) {
    {
      std::lock_guard<std::mutex> lock(mu_);
      tasks_.push_back(std::move(task));
    }
    given_.notify_one();
  }

 private:
  void run() {
    std::unique_lock<std::mutex> lock(mu_);
    while (true) {
      given_.wait(lock, [this] { return ends_ || !tasks_.empty(); });
      if (tasks_.empty()) return;
      std::function<void()> task = std::move(tasks_.front());
      tasks_.pop_front();
      lock.unlock();
      task();
      task = nullptr;
      lock.lock();
    }
  }

  std::mutex mu_;
  std::condition_variable given_;
  std::deque<std::function<void()>> tasks_;
  bool ends_ = false;
  std::vector<std::thread> threads_;
};
}  // namespace thread

struct CpuWorkerThreads {
  int num_threads;
  thread::ThreadPool* workers;
};

struct Device {
  CpuWorkerThreads* tensorflow_cpu_worker_threads() { return &threads; }
  CpuWorkerThreads threads;
};

class OpInputList {
 public:
  OpInputList() = default;
  explicit OpInputList(const std::vector<Tensor>* tensors) : tensors_(tensors) {}
  int size() const { return tensors_->size(); }
  const Tensor& operator[](int i) const { return (*tensors_)[i]; }

 private:
  const std::vector<Tensor>* tensors_ = nullptr;
};

class OpKernelConstruction {
 public:
  explicit OpKernelConstruction(std::map<std::string, std::any> attributes)
      : attributes_(std::move(attributes)) {}
  template <typename T>
  Status GetAttr(const char* name, T* value) const {
    *value = std::any_cast<T>(attributes_.at(name));
    return Status();
  }
  void fail(const Status& status) { this->status = status; }
  Status status;

 private:
  std::map<std::string, std::any> attributes_;
};

using Runner = std::function<void(std::function<void()>)>;

class OpKernelContext {
 public:
  using Inputs = std::map<std::string, std::vector<Tensor>>;
  OpKernelContext(Device* device, Runner* runner, Inputs inputs, std::vector<DataType> types)
      : outputs(types.size()),
        device_(device),
        runner_(runner),
        inputs_(std::move(inputs)),
        types_(std::move(types)) {}

  Device* device() { return device_; }
  Runner* runner() { return runner_; }
  Status input_list(const char* name, OpInputList* list) const {
    *list = OpInputList(&inputs_.at(name));
    return Status();
  }
  Status input(const char* name, const Tensor** tensor) const {
    *tensor = &inputs_.at(name).at(0);
    return Status();
  }
  const Tensor& input(int) const { return inputs_.begin()->second.at(0); }
  Status allocate_output(int i, const TensorShape& shape, Tensor** tensor) {
    outputs.at(i) = Tensor(types_.at(i), shape);
    *tensor = &outputs[i];
    return Status();
  }
  Status allocate_temp(DataType type, const TensorShape& shape, Tensor* tensor) const {
    *tensor = Tensor(type, shape);
    return Status();
  }
  void fail(const Status& status) { this->status = status; }

  Status status;
  std::vector<Tensor> outputs;

 private:
  Device* const device_;
  Runner* const runner_;
  const Inputs inputs_;
  const std::vector<DataType> types_;
};

inline Status LookupResource(OpKernelContext*, const ResourceHandle& handle,
                             std::shared_ptr<Var>* variable) {
  *variable = handle.variable;
  return Status();
}

class OpKernel {
 public:
  explicit OpKernel(OpKernelConstruction*) {}
  virtual ~OpKernel() = default;
  virtual void Compute(OpKernelContext* ctx) = 0;
};

// Makes a kernel, by the name of its op.
using Factory = std::function<OpKernel*(OpKernelConstruction*)>;
inline std::map<std::string, Factory>& factories() {
  static auto* const all = new std::map<std::string, Factory>;
  return *all;
}

constexpr char DEVICE_CPU[] = "CPU";

namespace register_kernel {
struct Name {
  explicit Name(const char* name) : name(name) {}
  Name& Device(const char*) { return *this; }
  const char* name;
};
}  // namespace register_kernel

namespace shape_inference {
inline void ScalarShape() {}
inline void UnknownShape() {}
inline void NoOutputs() {}
}  // namespace shape_inference

// A definition of an op, which nothing reads here.
struct Definition {
  Definition& Input(const char*) { return *this; }
  Definition& Output(const char*) { return *this; }
  Definition& Attr(const char*) { return *this; }
  Definition& SetIsStateful() { return *this; }
  Definition& SetShapeFn(void (*)()) { return *this; }
  Definition& Doc(const char*) { return *this; }
};

#define ESTIMATOR_EMB_JOINED(A, B) A##B
#define ESTIMATOR_EMB_NUMBERED(A, B) ESTIMATOR_EMB_JOINED(A, B)
#define REGISTER_OP(NAME)                                                        \
  [[maybe_unused]] static const ::tensorflow::Definition ESTIMATOR_EMB_NUMBERED( \
      definition_, __COUNTER__) = ::tensorflow::Definition()
#define REGISTER_KERNEL_BUILDER(BUILDER, ...)                                                    \
  [[maybe_unused]] static const bool ESTIMATOR_EMB_NUMBERED(registered_, __COUNTER__) =          \
      ::tensorflow::factories()                                                                  \
          .emplace((::tensorflow::register_kernel::BUILDER).name,                                \
                   [](::tensorflow::OpKernelConstruction* ctx) { return new __VA_ARGS__(ctx); }) \
          .second

}  // namespace tensorflow

#endif  // ESTIMATOR_EMB_TESTS_NATIVE_THREADS_RUNTIME_H_
