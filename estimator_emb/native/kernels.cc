// SPDX-License-Identifier: Apache-2.0
// The kernels of one instruction set, after which KERNELS is named.

#include <math.h>
#include <string.h>

#include "grouping.h"
#include "lookup.h"
#include "rows.h"

namespace estimator_emb {
namespace {

template <typename Id>
bool in_range(const Id* ids, int64_t count, int64_t vocabulary, bool padded) {
  // An id outside sets the sign bit of itself, or of its distance from the last id.
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
  // As in `in_range`; the number of segments is positive, and so the distance does not overflow.
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

// Turns counts, or weights, into gains. `norms` is scratch memory, [batch].
void finish_gains(const Feature& f, float* gains, const uint32_t* segments, float* norms) {
  if (f.weights == nullptr) {
    for (int64_t b = 0; b < f.batch; ++b) {
      gains[b] = quotient(1.0f, f.combiner == kMean ? gains[b] : sqrtf(gains[b]));
    }
    return;
  }
  if (f.combiner == kSum) return;
  memset(norms, 0, sizeof(float) * f.batch);
  const bool mean = f.combiner == kMean;
  for (int64_t j = 0; j < f.count; ++j) {
    norms[segments[j]] += mean ? gains[j] : gains[j] * gains[j];
  }
  for (int64_t j = 0; j < f.count; ++j) {
    const float norm = norms[segments[j]];
    gains[j] = quotient(gains[j], mean ? norm : sqrtf(norm));
  }
}

// An allocator of pieces of scratch memory. Those of the largest alignment must be taken first.
struct Scratch {
  char* at;

  template <typename T>
  T* take(int64_t number) {
    T* const taken = reinterpret_cast<T*>(at);
    at += sizeof(T) * number;
    return taken;
  }
};

int64_t update_scratch(const Feature* features, int count, int64_t dimension) {
  int64_t total = 0, bytes = sizeof(float) * dimension, most = 0;
  for (int i = 0; i < count; ++i) {
    total += features[i].count;
    bytes += sizeof(float) * gains_of(features[i]) +
             (indexed(features[i]) ? sizeof(uint32_t) * features[i].count : 0);
    if (features[i].batch > most) most = features[i].batch;
  }
  return bytes + sizeof(uint64_t) * (2 * total + 1) + sizeof(float) * most +
         sizeof(Source) * count;
}

Result update(const Feature* features, const float* const* gradients, int count,
              int64_t vocabulary, int part, int parts, Rule rule, Rows* rows, void* memory) {
  if (rows->last) {
    rows->first = vocabulary * part / parts;
    rows->last = vocabulary * (part + 1) / parts;
    if (rows->first == rows->last) return kGood;
  }
  int64_t total = 0, most = 0, batch = 0;
  for (int i = 0; i < count; ++i) {
    const Feature& f = features[i];
    const int64_t payloads = indexed(f) ? f.count : f.segments();
    total += f.count;
    if (payloads > most) most = payloads;
    if (f.batch > batch) batch = f.batch;
  }
  const int payload_bits = bits_of(most);
  if (payload_bits > 31 || payload_bits + bits_of(count - 1) > 32 || total > INT32_MAX) {
    return kTooMany;
  }

  Scratch scratch{static_cast<char*>(memory)};
  Source* sources = scratch.take<Source>(count);
  uint64_t* keys = scratch.take<uint64_t>(total + 1);  // `put` writes one key ahead.
  uint64_t* other = scratch.take<uint64_t>(total);
  float* norms = scratch.take<float>(batch);
  rows->scratch = scratch.take<float>(rows->dimension);

  uint64_t* end = keys;
  for (int i = 0; i < count; ++i) {
    const Feature& f = features[i];
    float* gains = gains_of(f) ? scratch.take<float>(gains_of(f)) : nullptr;
    uint32_t* segments = indexed(f) ? scratch.take<uint32_t>(f.count) : nullptr;
    const Collection to{static_cast<uint64_t>(vocabulary), static_cast<uint32_t>(part),
                        static_cast<uint32_t>(parts), static_cast<uint64_t>(rows->first),
                        static_cast<uint64_t>(rows->last),
                        static_cast<uint64_t>(i) << payload_bits, gains, segments, gradients[i],
                        rows->dimension};
    const Result result = f.wide ? Occurrences<int64_t>{{to}, f}.collect_all(end)
                                 : Occurrences<int32_t>{{to}, f}.collect_all(end);
    if (result != kGood) return result;
    if (gains != nullptr) finish_gains(f, gains, segments, norms);
    sources[i] = Source{gradients[i], gains, segments, static_cast<uint32_t>(f.limit ? f.limit : 1)};
  }

  rows->count = end - keys;
  rows->keys = sort(keys, other, rows->count, bits_of(vocabulary - 1));
  rows->payload_bits = payload_bits;
  rows->sources = sources;
  rows->single = count == 1 && sources[0].segments == nullptr;
  rows->samples = rows->cores > 1 && batch > rows->cores ? batch / rows->cores : 1;
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

extern "C" __attribute__((visibility("default"))) const estimator_emb::Kernels KERNELS = {
    estimator_emb::ids_in_range,    estimator_emb::finite,
    estimator_emb::places_in_range, estimator_emb::places_ascend,
    estimator_emb::lookup,          estimator_emb::lookup_unsorted,
    estimator_emb::update_scratch,  estimator_emb::update,
    estimator_emb::sums};
