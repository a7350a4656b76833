// Memory bandwidth on every core: `floor COLUMNS TABLE_BYTES` prints gigabytes per second, read and
// written together, of a copy, and of rows read and written at random places of a table.
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

template <class Work>
double SecondsOnAllCores(Work work) {
  double best = 1e9;
  const int cores = std::thread::hardware_concurrency();
  for (int round = 0; round < 7; ++round) {
    const auto start = std::chrono::steady_clock::now();
    std::vector<std::thread> threads;
    for (int core = 0; core < cores; ++core) threads.emplace_back(work, core, cores);
    for (auto& one : threads) one.join();
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    if (seconds.count() < best) best = seconds.count();
  }
  return best;
}

int main(int, char** arguments) {
  const int64_t columns = std::atoll(arguments[1]);
  const int64_t rows = std::atoll(arguments[2]) / columns / 4;
  std::vector<float> table(rows * columns, 1.0f);

  const int64_t half = rows * columns / 2;
  const double copy = SecondsOnAllCores([&](int core, int cores) {
    const int64_t size = half / cores;
    std::memcpy(&table[core * size], &table[half + core * size], size * 4);
  });

  const int64_t touched = 2000000;
  std::vector<int64_t> ids(touched);
  uint64_t state = 1;
  for (auto& id : ids) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    id = (state >> 33) % rows;
  }
  const double random = SecondsOnAllCores([&](int core, int cores) {
    const int64_t from = touched * core / cores, to = touched * (core + 1) / cores;
    for (int64_t i = from; i < to; ++i) {
      if (i + 16 < to) {
        const char* ahead = reinterpret_cast<const char*>(&table[ids[i + 16] * columns]);
        for (int64_t byte = 0; byte < columns * 4; byte += 64) __builtin_prefetch(ahead + byte, 1);
      }
      float* row = &table[ids[i] * columns];
      for (int64_t column = 0; column < columns; ++column) row[column] *= 0.999f;
    }
  });
  std::printf("{\"copy\": %f, \"random\": %f}\n", half * 8 / copy / 1e9,
              touched * columns * 8 / random / 1e9);
}
