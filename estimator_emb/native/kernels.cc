// The kernels of one instruction set. ESTIMATOR_EMB_NAME is named after it.

#include <math.h>
#include <string.h>

#include "grouping.h"
#include "lookup.h"
#include "rows.h"

namespace estimator_emb {
namespace {

template <typename Id>
bool in_range(const Id* ids, int64_t count, int64_t vocabulary, bool padded) {
  // For an id outside, the id or its distance from the last id has its sign bit set.
  const uint64_t lowest = padded, last = vocabulary - 1;
  uint64_t signs = 0;
  for (int64_t j = 0; j < count; ++j) {
    const uint64_t id = static_cast<int64_t>(ids[j]);
    signs |= (id + lowest) | (last - id);
  }
  return signs >> 63 == 0;
}

bool ids_in_range(const void* ids, bool wide, int64_t count, int64_t vocabulary, bool padded) {
  if (wide) return in_range(static_cast<const int64_t*>(ids), count, vocabulary, padded);
  return in_range(static_cast<const int32_t*>(ids), count, vocabulary, padded);
}

bool finite(const float* values, int64_t count) {
  bool good = true;
  for (int64_t i = 0; i < count; ++i) good &= fabsf(values[i]) <= 3.40282347e38f;
  return good;
}

bool places_in_range(const Feature* f) {
  // As in `in_range`. The number of segments is positive, so the distance does not overflow.
  const uint64_t last = f->stride == 2 ? f->batch - 1 : f->segments() - 1;
  const int64_t* const places = f->places;
  uint64_t signs = 0;
  if (f->stride == 1) {
    for (int64_t j = 0; j < f->count; ++j) {
      const uint64_t place = places[j];
      signs |= place | (last - place);
    }
    return signs >> 63 == 0;
  }
  const uint64_t last_position = f->positions - 1;
  for (int64_t j = 0; j < f->count; ++j) {
    const uint64_t place = places[2 * j], position = places[2 * j + 1];
    signs |= place | (last - place) | position | (last_position - position);
  }
  return signs >> 63 == 0;
}

bool places_ascend(const Feature* f) {
  int64_t before = -1;
  for (int64_t j = 0; j < f->count; ++j) {
    int64_t segment = f->places[j * f->stride];
    if (f->stride == 2) {
      const int64_t position = f->places[2 * j + 1];
      if (position >= f->limit) continue;
      segment = segment * f->limit + position;
    }
    if (segment <= before) return false;
    before = segment;
  }
  return true;
}

// Returns the value of Rows::single.
bool single(const Source* sources, int count) {
  return count == 1 && sources[0].segments == nullptr;
}

int64_t order_bytes(const Feature* features, int count) { return Order::bytes(features, count); }

int64_t scratch_bytes(const Feature* features, int count, int64_t dimension) {
  const Extent extent(features, count);
  return sizeof(Source) * count + Order::bytes(features, count) +
         sizeof(uint64_t) * (extent.occurrences + 1) + sizeof(float) * (extent.batch + dimension);
}

Result lookup_in_order(const Feature* features, int count, const float* table, int64_t vocabulary,
                       int64_t dimension, void* memory, void* scratch_memory,
                       float* const* activations) {
  const Extent extent(features, count);
  if (!extent.fits) return kTooMany;
  Scratch scratch{static_cast<char*>(scratch_memory)};
  Source* const sources = scratch.take<Source>(count);
  Rows every{};
  every.dimension = dimension;
  const Order order(memory, extent.occurrences);
  const Result result = write_order(features, count, extent, nullptr, every, vocabulary, 0, 1,
                                    scratch, order, sources);
  if (result != kGood) return result;
  for (int i = 0; i < count; ++i) clear(activations[i], features[i].batch, dimension);
  add_rows(order.keys, *order.number, sources, extent.payload_bits, single(sources, count), table,
           dimension, activations);
  for (int i = 0; i < count; ++i) {
    if (!normalised(features[i])) continue;
    float* sum = activations[i];
    for (int64_t b = 0; b < features[i].batch; ++b, sum += dimension) {
      for (int64_t column = 0; column < dimension; ++column) sum[column] *= sources[i].gains[b];
    }
  }
  return kGood;
}

Result update(const Feature* features, const float* const* gradients, int count, int64_t vocabulary,
              int part, int parts, Rule rule, Rows* rows, const void* known, void* memory) {
  if (rows->last) {
    rows->first = vocabulary * part / parts;
    rows->last = vocabulary * (part + 1) / parts;
    if (rows->first == rows->last) return kGood;
  }
  const Extent extent(features, count);
  if (!extent.fits) return kTooMany;
  Scratch scratch{static_cast<char*>(memory)};
  Source* const sources = scratch.take<Source>(count);
  void* const own = scratch.take<char>(Order::bytes(features, count));
  Order order(known == nullptr ? own : const_cast<void*>(known), extent.occurrences);
  if (known == nullptr) {
    const Result result = write_order(features, count, extent, gradients, *rows, vocabulary, part,
                                      parts, scratch, order, sources);
    if (result != kGood) return result;
    rows->keys = order.keys;
    rows->count = *order.number;
  } else {
    order.read(features, count, sources);
    const int64_t begin = order.part_begins(part, parts);
    rows->keys = order.keys + begin;
    rows->count = order.part_begins(part + 1, parts) - begin;
    for (int i = 0; i < count; ++i) {  // As in `Occurrences`.
      prefetch(gradients[i], features[i].segments() * rows->dimension);
    }
  }
  for (int i = 0; i < count; ++i) {
    sources[i].gradients = gradients[i];
    sources[i].positions = features[i].limit ? features[i].limit : 1;
  }
  rows->scratch = scratch.take<float>(rows->dimension);
  rows->payload_bits = extent.payload_bits;
  rows->sources = sources;
  rows->single = single(sources, count);
  rows->samples = rows->cores > 1 && extent.batch > rows->cores ? extent.batch / rows->cores : 1;
  rule(rows);
  return kGood;
}

struct StoreSum {
  static inline void run(int64_t n, float, const float*, const float* g, float* const* variables,
                         int64_t at) {
    memcpy(variables[0] + at, g, sizeof(float) * n);
  }
};

void sums(const Rows* rows) { update_rows<StoreSum>(rows, 0); }

}  // namespace

}  // namespace estimator_emb

ESTIMATOR_EMB_EXPORT const estimator_emb::Kernels ESTIMATOR_EMB_NAME = {
    estimator_emb::ids_in_range,  estimator_emb::finite,        estimator_emb::places_in_range,
    estimator_emb::places_ascend, estimator_emb::lookup,        estimator_emb::lookup_unsorted,
    estimator_emb::order_bytes,   estimator_emb::scratch_bytes, estimator_emb::lookup_in_order,
    estimator_emb::update,        estimator_emb::sums};
