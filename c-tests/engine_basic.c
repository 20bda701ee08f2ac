/* The store: put, get, get_view, delete, batches, levels of durability; keys and values are bytes with a length;
 * what was written is there when it is opened again. */
#include "test.h"

static int get_is(engine_t *e, const void *key, size_t key_len, const void *value, size_t len) {
    size_t room = len + 16;
    char *buffer = malloc(room);
    memset(buffer, 0x77, room);
    int code = engine_get(e, key, key_len, buffer, &room);
    int same = code == IOE_OK && room == len && (!len || !memcmp(buffer, value, len)) && buffer[len] == 0x77;
    free(buffer);
    return same;
}

static int missing(engine_t *e, const char *key) {
    size_t room = 8;
    char buffer[8] = "keep me";
    return engine_get(e, key, strlen(key), buffer, &room) == IOE_E_NOT_FOUND && room == 8 && !strcmp(buffer, "keep me");
}

static void bytes(engine_t *e) {
    EQUAL(engine_put(e, "key", 3, "value", 5), IOE_OK, "put");
    CHECK(get_is(e, "key", 3, "value", 5), "get");
    EQUAL(engine_put(e, "key", 3, "other", 5), IOE_OK, "put over it");
    CHECK(get_is(e, "key", 3, "other", 5), "the newer value is read");
    EQUAL(engine_put(e, NULL, 0, "of the empty key", 16), IOE_OK, "an empty key");
    CHECK(get_is(e, "", 0, "of the empty key", 16), "is a key");
    EQUAL(engine_put(e, "empty value", 11, NULL, 0), IOE_OK, "an empty value");
    CHECK(get_is(e, "empty value", 11, "", 0), "is a value, not an absence");
    EQUAL(engine_put(e, "a\0b", 3, "c\0d\0", 4), IOE_OK, "NUL bytes");
    CHECK(get_is(e, "a\0b", 3, "c\0d\0", 4), "are kept exactly");
    CHECK(missing(e, "a"), "and don't end a key");

    char *key = malloc(65536), *value = malloc(3 * MIB);
    test_fill(key, 65536, 1);
    test_fill(value, 3 * MIB, 2);
    EQUAL(engine_put(e, key, 65535, "long", 4), IOE_OK, "a key of 65,535 bytes");
    CHECK(get_is(e, key, 65535, "long", 4), "is read");
    EQUAL(engine_put(e, key, 65536, "long", 4), IOE_E_TOO_LARGE, "one of 65,536 is refused");
    EQUAL(engine_put(e, "large", 5, value, ((size_t)1 << 30) + 1), IOE_E_TOO_LARGE, "so is a value over 1 GiB, unread");
    CHECK(missing(e, "large"), "and nothing is written");
    EQUAL(engine_put(e, "large", 5, value, 3 * MIB), IOE_OK, "a value of 3 MiB");
    CHECK(get_is(e, "large", 5, value, 3 * MIB), "is read");
    size_t room = 100;
    char small[100];
    memset(small, 1, sizeof small);
    EQUAL(engine_get(e, "large", 5, small, &room), IOE_E_TOO_SMALL, "too small a buffer");
    EQUAL(room, 3 * MIB, "is told the length needed");
    room = 0;
    EQUAL(engine_get(e, "large", 5, NULL, &room), IOE_E_TOO_SMALL, "no buffer at all asks for the length");
    EQUAL(room, 3 * MIB, "and gets it");
    free(key);
    free(value);
}

static void deletes(engine_t *e) {
    CHECK(missing(e, "never there"), "what was never there isn't found, and the buffer is untouched");
    EQUAL(engine_delete(e, "never there", 11), IOE_OK, "deleting it is no error");
    EQUAL(engine_put(e, "k", 1, "1", 1), IOE_OK, "put");
    EQUAL(engine_delete(e, "k", 1), IOE_OK, "delete");
    CHECK(missing(e, "k"), "it is gone");
    EQUAL(engine_put(e, "k", 1, "2", 1), IOE_OK, "put again");
    CHECK(get_is(e, "k", 1, "2", 1), "it is back with the new value");
    EQUAL(engine_put(e, "gone", 4, "x", 1), IOE_OK, "put");
    EQUAL(engine_delete(e, "gone", 4), IOE_OK, "delete, for good");
}

static void batches(engine_t *e) {
    engine_writebatch_t *b = NULL;
    EQUAL(engine_writebatch_create(&b), IOE_OK, "a write batch");
    EQUAL(engine_writebatch_put(b, "b1", 2, "one", 3), IOE_OK, "put");
    EQUAL(engine_writebatch_put(b, "b2", 2, "two", 3), IOE_OK, "put");
    EQUAL(engine_writebatch_delete(b, "b1", 2), IOE_OK, "delete within the batch");
    EQUAL(engine_writebatch_count(b), 3, "it has three entries");
    CHECK(missing(e, "b2"), "nothing of it is there before it is written");
    EQUAL(engine_write(e, b, IOE_DURABLE), IOE_OK, "written");
    CHECK(missing(e, "b1") && get_is(e, "b2", 2, "two", 3), "in its order");
    EQUAL(engine_writebatch_clear(b), IOE_OK, "cleared");
    EQUAL(engine_writebatch_count(b), 0, "it is empty");
    EQUAL(engine_write(e, b, IOE_DURABLE), IOE_OK, "an empty batch writes nothing");
    static const struct { int level; const char *key; } levels[] = {{IOE_BUFFERED, "buffered"}, {IOE_VOLATILE, "volatile"}};
    for (int i = 0; i < 2; i++) {
        EQUAL(engine_writebatch_clear(b), IOE_OK, "clear");
        EQUAL(engine_writebatch_put(b, levels[i].key, 8, "x", 1), IOE_OK, "put");
        EQUAL(engine_write(e, b, levels[i].level), IOE_OK, "written at a weaker level");
        CHECK(get_is(e, levels[i].key, 8, "x", 1), "%s: read at once", levels[i].key);
    }
    CHECK(engine_write(e, b, 77) == -EINVAL, "an unknown level is refused");
    EQUAL(engine_writebatch_put(b, "x", 65536, "", 0), IOE_E_TOO_LARGE, "a key too long is refused");
    EQUAL(engine_writebatch_count(b), 1, "and leaves the batch as it was");
    char *value = malloc(MIB);
    test_fill(value, MIB, 4);
    EQUAL(engine_writebatch_clear(b), IOE_OK, "clear");
    for (int i = 0; i < 8; i++) {
        char key[16];
        int len = snprintf(key, sizeof key, "wide %d", i);
        NEED(engine_writebatch_put(b, key, (size_t)len, value, MIB) == IOE_OK, "put");
    }
    EQUAL(engine_write(e, b, IOE_DURABLE), IOE_OK, "a batch of many frames");
    CHECK(get_is(e, "wide 7", 6, value, MIB), "its last value");
    free(value);
    EQUAL(engine_writebatch_destroy(b), IOE_OK, "destroyed");
}

static void views(engine_t *e) {
    engine_view_t view = {0}, untouched = {(void *)1, 2, {3, 4}};
    EQUAL(engine_get_view(e, "b2", 2, &view), IOE_OK, "a view");
    CHECK(view.len == 3 && !memcmp(view.data, "two", 3), "of the value");
    EQUAL(engine_put(e, "b2", 2, "changed", 7), IOE_OK, "the key gets another value");
    CHECK(view.len == 3 && !memcmp(view.data, "two", 3), "the view stays as it was");
    engine_view_release(&view);
    EQUAL(engine_get_view(e, "not there", 9, &untouched), IOE_E_NOT_FOUND, "no view of what isn't there");
    CHECK(untouched.data == (void *)1 && untouched.len == 2, "and the out-parameter is untouched");
    EQUAL(engine_get_view(e, "large", 5, &view), IOE_OK, "a view of a large value");
    CHECK(test_filled(view.data, view.len, 2), "with its bytes");
    engine_view_release(&view);
    engine_view_release(NULL);
}

struct writer { engine_t *e; int id, failed; };

static void *write_many(void *argument) {
    struct writer *w = argument;
    for (int i = 0; i < 100; i++) {
        char key[32];
        int len = snprintf(key, sizeof key, "thread %d %d", w->id, i);
        if (engine_put(w->e, key, (size_t)len, key, (size_t)len) != IOE_OK || !get_is(w->e, key, (size_t)len, key, (size_t)len))
            w->failed++;
    }
    return NULL;
}

static void many_threads(engine_t *e) {
    enum { THREADS = 8 };
    pthread_t threads[THREADS];
    struct writer writers[THREADS];
    int failed = 0;
    for (int i = 0; i < THREADS; i++) {
        writers[i] = (struct writer){e, i, 0};
        NEED(!pthread_create(&threads[i], NULL, write_many, &writers[i]), "a thread");
    }
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL), failed += writers[i].failed;
    EQUAL(failed, 0, "eight threads put durably and read what they put");
}

static void properties(engine_t *e) {
    char text[8192];
    size_t len = sizeof text - 1;
    EQUAL(engine_property(e, "stats", text, &len), IOE_OK, "the property stats");
    text[len < sizeof text ? len : sizeof text - 1] = 0;
    CHECK(len > 20 && strchr(text, '\n'), "lists all of them");
    len = 1;
    EQUAL(engine_property(e, "stats", text, &len), IOE_E_TOO_SMALL, "into too little room");
    CHECK(len > 20, "it says how much is needed");
    len = sizeof text;
    EQUAL(engine_property(e, "no such property", text, &len), -EINVAL, "an unknown property");
}

static void reopened(const char *dir) {
    engine_t *e = test_engine(dir, NULL);
    CHECK(get_is(e, "key", 3, "other", 5), "after reopening: the newer value");
    CHECK(get_is(e, NULL, 0, "of the empty key", 16), "the empty key");
    CHECK(get_is(e, "empty value", 11, "", 0), "the empty value");
    CHECK(get_is(e, "a\0b", 3, "c\0d\0", 4), "NUL bytes");
    CHECK(get_is(e, "k", 1, "2", 1), "put, delete, put of one key");
    CHECK(missing(e, "gone") && missing(e, "b1"), "nothing deleted returns");
    CHECK(get_is(e, "buffered", 8, "x", 1) && get_is(e, "volatile", 8, "x", 1), "weaker writes, after a clean close");
    int there = 0;
    for (int i = 0; i < 800; i++) {
        char key[32];
        int len = snprintf(key, sizeof key, "thread %d %d", i / 100, i % 100);
        there += get_is(e, key, (size_t)len, key, (size_t)len);
    }
    EQUAL(there, 800, "what the threads put");
    EQUAL(engine_close(e), IOE_OK, "close");
}

/* Every way to make a log durable, at every level a store can have by default. */
static void ways(void) {
    for (int sync = IOE_SYNC_AUTO; sync <= IOE_SYNC_SYSCALL; sync++)
        for (int level = IOE_DURABLE; level <= IOE_VOLATILE; level++) {
            char name[32], key[16];
            snprintf(name, sizeof name, "way-%d-%d", sync, level);
            char *dir = test_path(name);
            engine_options_t o = test_engine_options();
            o.sync = sync;
            o.durability = level;
            engine_t *e = test_engine(dir, &o);
            int wrong = 0, there = 0;
            for (int i = 0; i < 50; i++) wrong += engine_put(e, key, (size_t)snprintf(key, sizeof key, "%d", i), name, sizeof name) != 0;
            CHECK(!wrong, "sync %d, level %d: puts", sync, level);
            EQUAL(engine_flush_batch(e), IOE_OK, "flush");
            EQUAL(engine_close(e), IOE_OK, "close");
            e = test_engine(dir, &o);
            for (int i = 0; i < 50; i++) there += get_is(e, key, (size_t)snprintf(key, sizeof key, "%d", i), name, sizeof name);
            EQUAL(there, 50, "all there");
            EQUAL(engine_close(e), IOE_OK, "close");
        }
}

int main(void) {
    ways();
    char *dir = test_path("store");
    engine_t *e = test_engine(dir, NULL), *second = NULL;
    bytes(e);
    deletes(e);
    batches(e);
    views(e);
    many_threads(e);
    properties(e);
    engine_view_t view = {0};
    EQUAL(engine_get_view(e, "key", 3, &view), IOE_OK, "a view");
    engine_options_t o = test_engine_options();
    EQUAL(engine_open(dir, &o, &second), IOE_E_BUSY, "open twice is busy");
    EQUAL(engine_close(e), IOE_OK, "close");
    CHECK(view.len == 5 && !memcmp(view.data, "other", 5), "a view outlives the close");
    engine_view_release(&view);
    reopened(dir);

    o.error_if_exists = 1;
    EQUAL(engine_open(dir, &o, &second), -EEXIST, "error_if_exists");
    o.error_if_exists = 0;
    o.create_if_missing = 0;
    EQUAL(engine_open(test_path("not there"), &o, &second), -ENOENT, "create_if_missing off");
    o.create_if_missing = 1;
    o.read_only = 1;
    EQUAL(engine_open(dir, &o, &second), IOE_E_UNSUPPORTED, "read_only comes later, and says so");
    struct stat info;
    char lock[1100];
    snprintf(lock, sizeof lock, "%s/LOCK", dir);
    CHECK(!stat(dir, &info) && (info.st_mode & 0777) == 0700, "the folder is the owner's alone");
    CHECK(!stat(lock, &info) && (info.st_mode & 0777) == 0600, "and so are its files");
    return test_finish();
}
