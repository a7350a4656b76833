// The types that the kernels, the optimizer rules and the TensorFlow ops share. This file includes
// nothing of TensorFlow. Files that include it are compiled once for each instruction set, so they
// must not contain code that other files share.

#pragma once

#include <stdint.h>

// Defines a symbol that is found in the library by its name.
#define ESTIMATOR_EMB_EXPORT extern "C" __attribute__((visibility("default")))

namespace estimator_emb {

// How the input assigns occurrences to segments. A segment is a row of the activation.
enum Form {
  kOne = 0,     // Occurrence j is segment j.
  kDense = 1,   // ids are [batch, width]. -1 stands for no id.
  kPlaces = 2,  // `places` has each occurrence's sample, and perhaps its position in it.
};

enum Combiner { kSum = 0, kMean = 1, kSqrtn = 2 };

enum Result { kGood = 0, kUnsorted = 1, kBadId = 2, kBadPlace = 3, kTooMany = 4 };

// The occurrences of one feature.
struct Feature {
  const void* ids;
  bool wide;  // ids are int64, else int32.
  Form form;
  Combiner combiner;
  int64_t count;          // Number of occurrences. kDense: number of ids, including -1.
  int64_t batch;          // Number of samples.
  int64_t width;          // kDense: ids per sample.
  int64_t limit;          // Positions of a sequence, each a segment. 0 for other features.
  const int64_t* places;  // kPlaces: [count, stride].
  int64_t stride;
  int64_t positions;     // kPlaces of stride 2: columns of the dense shape.
  const float* weights;  // [count]. Null means all 1.
  bool past_cache;       // All activations together are larger than the cache.

  int64_t segments() const { return limit ? batch * limit : batch; }
};

// The gradients of a feature's segments. The payload u of an occurrence is its segment or, if
// `segments` is set, the occurrence itself. `gains` is indexed by payload. Null means all 1.
struct Source {
  const float* gradients;
  const float* gains;
  const uint32_t* segments;
  uint32_t positions;  // Segments of each sample.
};

// The occurrences of a table, sorted by row, and the variables that its rule updates. A key has the
// row in its high 32 bits, and (feature << payload_bits) | payload in its low 32 bits.
struct Rows {
  int64_t count;  // Occurrences.
  const uint64_t* keys;
  int payload_bits;
  const Source* sources;
  bool single;  // There is a single source, without `segments`.
  int64_t dimension;
  float* const* variables;  // Weights, then slots, each [vocabulary, dimension].
  const float* constants;
  float learning_rate;
  float* scratch;  // [dimension]
  // If more than 1, each row is updated once for every core that has the row in its samples. Core
  // row % cores comes first. A core has `samples` samples, and the last core also has the rest.
  int cores;
  uint32_t samples;
  // If `last` is not 0, rows [first, last) are updated even if they do not occur, by a gradient of
  // zero. Then there is a single core.
  int64_t first, last;
};

typedef void (*Rule)(const Rows*);

// The kernels of one instruction set.
struct Kernels {
  // Returns whether all ids are in [0, vocabulary). `padded` also allows -1.
  bool (*ids_in_range)(const void* ids, bool wide, int64_t count, int64_t vocabulary, bool padded);
  bool (*finite)(const float* values, int64_t count);
  // Returns whether all places of a kPlaces feature are within its batch and `positions`.
  bool (*places_in_range)(const Feature*);
  // Returns whether the places of a kPlaces sequence ascend, so that no two ids share a place.
  bool (*places_ascend)(const Feature*);
  // Writes the activations of segments [first, last) from occurrences [begin, end). Returns
  // kUnsorted if the occurrences are not sorted by segment.
  Result (*lookup)(const Feature*, const float* table, int64_t vocabulary, int64_t dimension,
                   int64_t begin, int64_t end, int64_t first, int64_t last, float* activations);
  // Does the same for a whole kPlaces feature in any order. `norms` is scratch memory, [batch].
  Result (*lookup_unsorted)(const Feature*, const float* table, int64_t vocabulary,
                            int64_t dimension, float* norms, float* activations);
  // Returns the number of bytes for the order of a table's occurrences.
  int64_t (*order_bytes)(const Feature* features, int count);
  // Returns the number of bytes of scratch memory that `lookup_in_order` and `update` need.
  int64_t (*scratch_bytes)(const Feature* features, int count, int64_t dimension);
  // Sorts the occurrences of a table by row, and writes their order for `update`. Sums rows, read
  // in this order, to the activations of all features. No feature may be a sequence.
  Result (*lookup_in_order)(const Feature* features, int count, const float* table,
                            int64_t vocabulary, int64_t dimension, void* order, void* scratch,
                            float* const* activations);
  // Sums the gradients of each row of part `part` of `parts`, and runs the rule on the row. If the
  // rule updates every row, the caller sets `last` of `rows` to 1, and the part is a range of rows.
  // `order` comes from `lookup_in_order`. If it is null, occurrences are sorted here.
  Result (*update)(const Feature* features, const float* const* gradients, int count,
                   int64_t vocabulary, int part, int parts, Rule rule, Rows* rows,
                   const void* order, void* scratch);
  // A rule that replaces a row by the sum of its gradients.
  Rule sums;
};

}  // namespace estimator_emb
