// The types that the kernels, the optimizer rules and the TensorFlow ops share. This file includes
// nothing of TensorFlow, because files that include it are compiled once for each instruction set,
// and must not hold code that others share.

#pragma once

#include <stdint.h>

// Defines a symbol that is found in the library by its name.
#define ESTIMATOR_EMB_EXPORT extern "C" __attribute__((visibility("default")))

namespace estimator_emb {

// How the input says to which segment, that is row of the activation, each occurrence belongs.
enum Form {
  kOne = 0,     // Occurrence j is segment j.
  kDense = 1,   // ids are [batch, width]; -1 stands for no id.
  kPlaces = 2,  // `places` has each occurrence's sample, and perhaps its position in it.
};

enum Combiner { kSum = 0, kMean = 1, kSqrtn = 2 };

enum Result { kGood = 0, kUnsorted = 1, kBadId = 2, kBadPlace = 3, kTooMany = 4 };

// The occurrences of one feature.
struct Feature {
  const void* ids;
  bool wide;  // ids are int64; else int32.
  Form form;
  Combiner combiner;
  int64_t count;          // Number of occurrences, or for kDense of places for one.
  int64_t batch;          // Number of samples.
  int64_t width;          // kDense: ids per sample.
  int64_t limit;          // Positions of a sequence, each a segment; 0 if it is none.
  const int64_t* places;  // kPlaces: [count, stride].
  int64_t stride;
  int64_t positions;     // kPlaces of stride 2: columns of the dense shape.
  const float* weights;  // [count]; null means all 1.
  bool past_cache;       // All activations together are larger than the cache.

  int64_t segments() const { return limit ? batch * limit : batch; }
};

// Where the gradients of one feature's segments are. The payload u of an occurrence is its segment
// or, if `segments` is set, the occurrence itself. `gains` is indexed by payload; null means all 1.
struct Source {
  const float* gradients;
  const float* gains;
  const uint32_t* segments;
  uint32_t positions;  // Segments of each sample.
};

// The occurrences of one table, sorted by row, and the variables that its rule updates. A key has
// the row in its high 32 bits, and (feature << payload_bits) | payload in its low ones.
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
  // More than 1: each row is updated once for every core whose samples have it, that of core
  // row % cores first. A core has `samples` samples; the last one, what remains too.
  int cores;
  uint32_t samples;
  // Rows [first, last) are updated even if they do not occur, by a gradient of zero, if `last` is
  // not 0. Then there is one core.
  int64_t first, last;
};

typedef void (*Rule)(const Rows*);

// The kernels of one instruction set.
struct Kernels {
  // Returns whether all ids are in [0, vocabulary), or -1 if `padded`.
  bool (*ids_in_range)(const void* ids, bool wide, int64_t count, int64_t vocabulary, bool padded);
  bool (*finite)(const float* values, int64_t count);
  // Returns whether all places of a kPlaces feature are within its batch and `positions`.
  bool (*places_in_range)(const Feature*);
  // Returns whether the places of a kPlaces sequence ascend, so that no two ids share one.
  bool (*places_ascend)(const Feature*);
  // Writes the activations of segments [first, last) from occurrences [begin, end), which must be
  // sorted by segment. Returns kUnsorted if they are not.
  Result (*lookup)(const Feature*, const float* table, int64_t vocabulary, int64_t dimension,
                   int64_t begin, int64_t end, int64_t first, int64_t last, float* activations);
  // Does so for a whole kPlaces feature in any order. `norms` is scratch memory, [batch].
  Result (*lookup_unsorted)(const Feature*, const float* table, int64_t vocabulary,
                            int64_t dimension, float* norms, float* activations);
  // Returns the bytes of the order of a table's occurrences.
  int64_t (*order_bytes)(const Feature* features, int count);
  // Returns the bytes of scratch memory that `lookup_in_order` and `update` need.
  int64_t (*scratch_bytes)(const Feature* features, int count, int64_t dimension);
  // Sorts the occurrences of a table by row, writes their order for `update`, and the activations
  // of all features as sums of rows that are read in this order. No feature may be a sequence.
  Result (*lookup_in_order)(const Feature* features, int count, const float* table,
                            int64_t vocabulary, int64_t dimension, void* order, void* scratch,
                            float* const* activations);
  // Sums the gradients of each row of part `part` of `parts`, and runs the rule on the row. A
  // caller whose rule updates every row sets `last` of `rows` to 1, and the part is a range of
  // rows. `order` is what `lookup_in_order` wrote, or null: then occurrences are sorted here.
  Result (*update)(const Feature* features, const float* const* gradients, int count,
                   int64_t vocabulary, int part, int parts, Rule rule, Rows* rows,
                   const void* order, void* scratch);
  // A rule that writes the sum of a row's gradients in the place of the row.
  Rule sums;
};

}  // namespace estimator_emb
