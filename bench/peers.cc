// Durable puts from T threads: this engine beside RocksDB and LevelDB, in turn, round by round. Each put returns only
// when its bytes are on the device. Keys of 16 bytes, values of 100.
//   peers --dir DIR [--threads T] [--seconds S] [--rounds R] [--driver posix]
#include "bench.h"
#include <atomic>
#include <functional>
#include <iouring_engine.h>
#include <leveldb/db.h>
#include <rocksdb/db.h>
#include <string>
#include <thread>
#include <vector>

using Put = std::function<bool(const char *key, const std::string &value)>;

// Puts per second of `threads` threads for `span` seconds.
static double rate(const Put &put, int threads, double span, const char *name) {
    std::atomic<uint64_t> done{0};
    std::atomic<bool> failed{false};
    static std::atomic<uint64_t> seed{(uint64_t)(seconds() * 1e9)};
    double start = seconds();
    std::vector<std::thread> all;
    for (int t = 0; t < threads; t++)
        all.emplace_back([&, t] {
            uint64_t state = mix(seed++ + (uint64_t)t), mine = 0;
            std::string value(100, 'v');
            char key[17];
            while (seconds() - start < span && !failed) {
                snprintf(key, sizeof key, "%016llx", (unsigned long long)(state = mix(state)));
                if (!put(key, value)) failed = true;
                mine++;
            }
            done += mine;
        });
    for (auto &t : all) t.join();
    if (failed) die(name, 0, "a put was refused");
    return (double)done / (seconds() - start);
}

struct Stores {
    engine_t *ours = nullptr;
    rocksdb::DB *rocks = nullptr;
    leveldb::DB *level = nullptr;

    explicit Stores(const std::string &dir, const char *driver) {
        engine_options_t o;
        engine_options_init(&o, sizeof o);
        if (strcmp(driver, "posix") == 0) o.driver = IOE_DRIVER_POSIX;
        if (int rc = engine_open((dir + ".ours").c_str(), &o, &ours)) die("engine_open", rc, ioe_last_error());
        rocksdb::Options r;
        r.create_if_missing = true;
        if (!rocksdb::DB::Open(r, dir + ".rocksdb", &rocks).ok()) die("opening RocksDB", 0, nullptr);
        leveldb::Options l;
        l.create_if_missing = true;
        if (!leveldb::DB::Open(l, dir + ".leveldb", &level).ok()) die("opening LevelDB", 0, nullptr);
    }
    ~Stores() {
        engine_close(ours);
        delete rocks;
        delete level;
    }
    bool put_ours(const char *key, const std::string &value) {
        return engine_put(ours, key, 16, value.data(), value.size()) == 0;
    }
    bool put_rocks(const char *key, const std::string &value) {
        rocksdb::WriteOptions w;
        w.sync = true;
        return rocks->Put(w, rocksdb::Slice(key, 16), value).ok();
    }
    bool put_level(const char *key, const std::string &value) {
        leveldb::WriteOptions w;
        w.sync = true;
        return level->Put(w, leveldb::Slice(key, 16), value).ok();
    }
};

int main(int argc, char **argv) {
    int threads = atoi(option(argc, argv, "--threads", "16")), rounds = atoi(option(argc, argv, "--rounds", "5"));
    double span = atof(option(argc, argv, "--seconds", "2"));
    if (threads < 1 || threads > 1024 || rounds < 1) {
        fprintf(stderr, "--threads 1 to 1024, --rounds 1 or more\n");
        return 2;
    }
    Stores s(option(argc, argv, "--dir", "peers-bench"), option(argc, argv, "--driver", "auto"));
    std::vector<double> ours, rocks, level, to_rocks, to_best;
    for (int i = 0; i < rounds; i++) {
        rocks.push_back(rate([&](auto k, auto &v) { return s.put_rocks(k, v); }, threads, span, "RocksDB"));
        ours.push_back(rate([&](auto k, auto &v) { return s.put_ours(k, v); }, threads, span, "engine_put"));
        level.push_back(rate([&](auto k, auto &v) { return s.put_level(k, v); }, threads, span, "LevelDB"));
        to_rocks.push_back(ours[i] / rocks[i]);
        to_best.push_back(ours[i] / std::max(rocks[i], level[i]));
        printf("round %d, %d threads: engine_put %.0f/s  RocksDB %.0f/s  LevelDB %.0f/s  to RocksDB %.2f  to the better %.2f\n",
               i, threads, ours[i], rocks[i], level[i], to_rocks[i], to_best[i]);
    }
    auto m = [](std::vector<double> &v) { return median(v.data(), v.size()); };
    printf("median, %d threads: engine_put %.0f/s  RocksDB %.0f/s  LevelDB %.0f/s  to RocksDB %.2f  to the better %.2f\n",
           threads, m(ours), m(rocks), m(level), m(to_rocks), m(to_best));
    return 0;
}
