// SPDX-License-Identifier: Apache-2.0
// What the kernels, the optimizer rules and the TensorFlow ops share. No TensorFlow in here: what
// includes this is compiled once for each instruction set and must not hold code that others share.

#ifndef ESTIMATOR_EMB_NATIVE_KERNELS_H_
#define ESTIMATOR_EMB_NATIVE_KERNELS_H_

#include <stdint.h>

namespace estimator_emb {

// How the occurrences of a feature name the segment (row of the activation) each belongs to.
enum Form {
  kOne = 0,     // Occurrence j is segment j.
  kDense = 1,   // ids are [batch, width]; -1 fills up.
  kPlaces = 2,  // `places` holds each occurrence's sample, then maybe its position in it.
};

enum Combiner { kSum = 0, kMean = 1, kSqrtn = 2 };

enum Result { kGood = 0, kUnsorted = 1, kBadId = 2, kBadPlace = 3, kTooMany = 4 };

// The occurrences of one feature.
struct Feature {
  const void* ids;
  bool wide;  // int64 ids; else int32.
  Form form;
  Combiner combiner;
  int64_t count;          // Occurrences, or places for one.
  int64_t batch;          // Samples.
  int64_t width;          // kDense: ids of a sample.
  int64_t limit;          // Positions of a sequence, each a segment; 0 for no sequence.
  const int64_t* places;  // kPlaces: [count, stride].
  int64_t stride;
  int64_t positions;     // kPlaces of stride 2: of a sample, in the dense shape.
  const float* weights;  // [count]; null: all 1.
  bool past_cache;       // The activations of all features are more than a cache holds.

  int64_t segments() const { return limit ? batch * limit : batch; }
};

// Where the gradients of one feature's segments lie. A payload u of an occurrence is its segment,
// or, where `segments` is set, the occurrence itself. `gains` is indexed by payload; null: all 1.
struct Source {
  const float* gradients;
  const float* gains;
  const uint32_t* segments;
};

// The occurrences of one table, sorted by row, and what its rule works on. A key is the row in the
// high 32 bits, and (feature << payload_bits) | payload in the low ones.
struct Rows {
  int64_t count;  // Occurrences.
  const uint64_t* keys;
  int payload_bits;
  const Source* sources;
  bool single;  // There is one source, without `segments`.
  int64_t dimension;
  float* const* variables;  // Weights, then slots; [vocabulary, dimension] each.
  const float* constants;
  float learning_rate;
  float* scratch;  // [dimension]
};

typedef void (*Rule)(const Rows*);

// What one instruction set provides.
struct Kernels {
  // Whether all ids are in [0, vocabulary); -1 too, where `padded`.
  bool (*ids_in_range)(const void* ids, bool wide, int64_t count, int64_t vocabulary, bool padded);
  bool (*finite)(const float* values, int64_t count);
  // Whether all of a kPlaces feature are within its batch, and within `positions`.
  bool (*places_in_range)(const Feature*);
  // Whether the places of a kPlaces sequence ascend, so that no two ids share one.
  bool (*places_ascend)(const Feature*);
  // Writes the activations of segments [first, last) from occurrences [begin, end), which must be
  // sorted by segment. kUnsorted: they are not.
  Result (*lookup)(const Feature*, const float* table, int64_t vocabulary, int64_t dimension,
                   int64_t begin, int64_t end, int64_t first, int64_t last, float* activations);
  // The same of a whole kPlaces feature in any order. `norms`: scratch, [batch].
  Result (*lookup_unsorted)(const Feature*, const float* table, int64_t vocabulary,
                            int64_t dimension, float* norms, float* activations);
  // Bytes of scratch that `update` needs.
  int64_t (*update_scratch)(const Feature* features, int count, int64_t dimension);
  // Sums the gradients of each row that part `part` of `parts` holds, and runs the rule on it.
  Result (*update)(const Feature* features, const float* const* gradients, int count,
                   int64_t vocabulary, int part, int parts, Rule rule, Rows* rows, void* scratch);
};

}  // namespace estimator_emb

#endif  // ESTIMATOR_EMB_NATIVE_KERNELS_H_
