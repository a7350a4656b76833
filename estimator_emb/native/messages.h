// SPDX-License-Identifier: Apache-2.0
// What trainers and parameter servers send one another.
//
// A step of the tables of a cluster is
//
//   trainer              each server          trainer                each server
//   Route -> message     ShardsLookup         Combine -> activations
//                        -> values            RowGradients -> sums   ShardsUpdate
//
// A message is int32: for each shard of the server, how many of its rows the batch has, then these
// rows, shard by shard. Values are those rows, in that order. Sums are the learning rate of each
// shard, then the gradient of each row.

#ifndef ESTIMATOR_EMB_NATIVE_MESSAGES_H_
#define ESTIMATOR_EMB_NATIVE_MESSAGES_H_

#include <vector>

#include "ops.h"

namespace estimator_emb {
namespace {

// A message and where in it each shard's part lies.
struct Message {
  const int32_t* sizes = nullptr;
  const int32_t* rows = nullptr;
  std::vector<int64_t> starts;  // Of the rows of each shard; of the last, its end.

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

const float* floats(const Tensor& tensor) {
  return reinterpret_cast<const float*>(tensor.tensor_data().data());
}

float* floats(Tensor* tensor) {
  return reinterpret_cast<float*>(const_cast<char*>(tensor->tensor_data().data()));
}

}  // namespace
}  // namespace estimator_emb

#endif  // ESTIMATOR_EMB_NATIVE_MESSAGES_H_
