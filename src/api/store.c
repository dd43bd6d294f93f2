/* SPDX-License-Identifier: Apache-2.0 */
/* Stored responses and usage rows in SQLite: the statements, and closing after an error. */
#include "api/store.h"

#include <string.h>
#include <time.h>

#ifdef SL_HAVE_SQLITE
#include <sqlite3.h>

struct api_db {
    net_lock *lock; /* one user at a time */
    sqlite3 *db;
    sqlite3_stmt *put, *get, *del, *trim, *use, *find;
};

static const char schema[] =
    "PRAGMA journal_mode=WAL;PRAGMA synchronous=NORMAL;PRAGMA busy_timeout=2000;"
    "PRAGMA cache_size=-256;" /* KiB: rows are read one at a time, by their key */
    "CREATE TABLE IF NOT EXISTS response(id TEXT PRIMARY KEY, key TEXT NOT NULL, at INTEGER NOT "
    "NULL,"
    " body BLOB NOT NULL, history BLOB NOT NULL);"
    "CREATE INDEX IF NOT EXISTS response_at ON response(at);"
    "CREATE TABLE IF NOT EXISTS usage(key TEXT NOT NULL, day TEXT NOT NULL, requests INTEGER NOT "
    "NULL,"
    " prompt_tokens INTEGER NOT NULL, completion_tokens INTEGER NOT NULL, PRIMARY KEY(key, day));";

/* Columns that older versions did not make. */
static const char *const later[] = {
    "ALTER TABLE response ADD COLUMN items BLOB NOT NULL DEFAULT x''",
    "ALTER TABLE response ADD COLUMN n_input INTEGER NOT NULL DEFAULT 0"};

static sl_status fail(const struct api_db *d, const char *what, sl_err *err)
{
    return SL_FAIL(err, IO, "%s: %s", what, d->db ? sqlite3_errmsg(d->db) : "out of memory");
}

static bool prepare(struct api_db *d)
{
    const struct {
        sqlite3_stmt **out;
        const char *sql;
    } row[] = {
        {&d->put, "INSERT OR REPLACE INTO response(id, key, at, body, history, items, n_input) "
                  "VALUES(?1,?2,?3,?4,?5,?6,?7)"},
        {&d->get, "SELECT body, history, items, n_input FROM response WHERE id=?1 AND key=?2"},
        {&d->find, "SELECT items FROM (SELECT items FROM response WHERE key=?1 ORDER BY at DESC, "
                   "rowid DESC LIMIT ?3) WHERE instr(items, ?2) LIMIT 1"},
        {&d->del, "DELETE FROM response WHERE id=?1 AND key=?2"},
        {&d->trim,
         "DELETE FROM response WHERE rowid IN (SELECT rowid FROM response ORDER BY at DESC, "
         "rowid DESC LIMIT -1 OFFSET ?1)"},
        {&d->use, "INSERT INTO usage VALUES(?1,?2,?3,?4,?5) ON CONFLICT(key, day) DO UPDATE SET "
                  "requests=requests+?3, prompt_tokens=prompt_tokens+?4, "
                  "completion_tokens=completion_tokens+?5"},
    };
    for (int i = 0; i < BASE_COUNT_OF(row); i++)
        if (sqlite3_prepare_v2(d->db, row[i].sql, -1, row[i].out, NULL) != SQLITE_OK) return false;
    return true;
}

sl_status api_store_open(api *a, const char *path, sl_err *err)
{
    void *p = NULL;
    SL_TRY(mem_alloc_array(MEM_MISC, 1, sizeof *a->db, &p, err));
    struct api_db *d = a->db = p;
    const char *what = path ? path : "response store";
    SL_TRY(net_lock_open(&d->lock, err));
    if (sqlite3_open_v2(path ? path : ":memory:", &d->db,
                        SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX |
                            SQLITE_OPEN_NOFOLLOW,
                        NULL) != SQLITE_OK)
        return fail(d, what, err);
    sqlite3_hard_heap_limit64((sqlite3_int64)512 << 20); /* in memory this is what bounds it */
    if (sqlite3_exec(d->db, schema, NULL, NULL, NULL) != SQLITE_OK) return fail(d, what, err);
    for (int i = 0; i < BASE_COUNT_OF(later); i++)
        (void)sqlite3_exec(d->db, later[i], NULL, NULL, NULL); /* fails where it is there */
    if (!prepare(d)) return fail(d, what, err);
    return SL_OK;
}

void api_store_close(api *a)
{
    struct api_db *d = a->db;
    if (!d) return;
    sqlite3_stmt *all[] = {d->put, d->get, d->del, d->trim, d->use, d->find};
    for (int i = 0; i < BASE_COUNT_OF(all); i++)
        sqlite3_finalize(all[i]);
    sqlite3_close(d->db);
    net_lock_close(d->lock);
    mem_free(d);
    a->db = NULL;
}

static void text(sqlite3_stmt *s, int i, const char *z)
{
    sqlite3_bind_text(s, i, z, -1, SQLITE_STATIC);
}

static bool run(sqlite3_stmt *s)
{
    int rc = sqlite3_step(s);
    sqlite3_reset(s);
    sqlite3_clear_bindings(s);
    return rc == SQLITE_DONE;
}

sl_status api_store_put(api *a, const struct api_stored *s, sl_err *err)
{
    struct api_db *d = a->db;
    sl_status st = SL_OK;
    net_lock_take(d->lock);
    text(d->put, 1, s->id);
    text(d->put, 2, s->key);
    sqlite3_bind_int64(d->put, 3, (sqlite3_int64)time(NULL));
    sqlite3_bind_blob64(d->put, 4, s->body, s->n_body, SQLITE_STATIC);
    sqlite3_bind_blob64(d->put, 5, s->history, s->n_history, SQLITE_STATIC);
    sqlite3_bind_blob64(d->put, 6, s->items, s->n_items, SQLITE_STATIC);
    sqlite3_bind_int64(d->put, 7, (sqlite3_int64)s->n_input);
    if (!run(d->put)) st = fail(d, "response store", err);
    sqlite3_bind_int(d->trim, 1, API_STORE_MAX);
    if (!st && !run(d->trim)) st = fail(d, "response store", err);
    net_lock_give(d->lock);
    return st;
}

static sl_status copy(sqlite3_stmt *s, int col, struct arena *arena, const char **out, size_t *n,
                      sl_err *err)
{
    char *p = NULL;
    *n = (size_t)sqlite3_column_bytes(s, col);
    SL_TRY(mem_arena_str(arena, *n ? sqlite3_column_blob(s, col) : "", *n, &p, err));
    *out = p;
    return SL_OK;
}

sl_status api_store_get(api *a, const char *id, const char *key, struct arena *arena,
                        struct api_stored *out, sl_err *err)
{
    struct api_db *d = a->db;
    sl_status st = SL_OK;
    *out = (struct api_stored){.id = id, .key = key};
    net_lock_take(d->lock);
    text(d->get, 1, id);
    text(d->get, 2, key);
    int rc = sqlite3_step(d->get);
    if (rc == SQLITE_ROW) {
        st = copy(d->get, 0, arena, &out->body, &out->n_body, err);
        if (!st) st = copy(d->get, 1, arena, &out->history, &out->n_history, err);
        if (!st) st = copy(d->get, 2, arena, &out->items, &out->n_items, err);
        out->n_input = BASE_MIN((size_t)sqlite3_column_int64(d->get, 3), out->n_items);
    } else if (rc == SQLITE_DONE)
        st = SL_FAIL(err, NOTFOUND, "there is no response \"%.80s\"", id);
    else
        st = fail(d, "response store", err);
    sqlite3_reset(d->get);
    sqlite3_clear_bindings(d->get);
    net_lock_give(d->lock);
    return st;
}

/* The items of the newest response that has one of that id, in brackets, onto out. */
static sl_status find_items(struct api_db *d, const char *id, const char *key, struct str *out,
                            sl_err *err)
{
    struct str want;
    sl_status st = SL_OK;
    str_init(&want, MEM_REQUEST, 0);
    str_printf(&want, "\"id\":\"%s\"", id);
    SL_TRY(str_status(&want, err));
    net_lock_take(d->lock);
    text(d->find, 1, key);
    sqlite3_bind_blob64(d->find, 2, want.p, want.n, SQLITE_STATIC);
    sqlite3_bind_int(d->find, 3, API_STORE_FIND);
    int rc = sqlite3_step(d->find);
    if (rc == SQLITE_ROW) {
        str_putc(out, '[');
        str_put(out, sqlite3_column_blob(d->find, 0), (size_t)sqlite3_column_bytes(d->find, 0));
        str_putc(out, ']');
        st = str_status(out, err);
    } else if (rc != SQLITE_DONE)
        st = fail(d, "response store", err);
    sqlite3_reset(d->find);
    sqlite3_clear_bindings(d->find);
    net_lock_give(d->lock);
    str_fini(&want);
    return st;
}

sl_status api_store_item(api *a, const char *id, const char *key, struct arena *arena,
                         const struct json **out, sl_err *err)
{
    const struct json *all = NULL;
    struct str s;
    *out = NULL;
    str_init(&s, MEM_REQUEST, 0);
    sl_status st = SL_OK;
    if (strlen(id) < 128 && !strpbrk(id, "\"\\")) st = find_items(a->db, id, key, &s, err);
    if (!st && s.n) st = text_json_parse(arena, "response store", s.p, s.n, &all, err);
    str_fini(&s);
    if (st) return st;
    for (const struct json *it = all ? all->child : NULL; it && !*out; it = it->next)
        if (text_json_is(text_json_get(it, "id"), id)) *out = it;
    return *out ? SL_OK : SL_FAIL(err, NOTFOUND, "no stored response has an item \"%.80s\"", id);
}

sl_status api_store_delete(api *a, const char *id, const char *key, sl_err *err)
{
    struct api_db *d = a->db;
    sl_status st = SL_OK;
    net_lock_take(d->lock);
    text(d->del, 1, id);
    text(d->del, 2, key);
    if (!run(d->del))
        st = fail(d, "response store", err);
    else if (sqlite3_changes(d->db) == 0)
        st = SL_FAIL(err, NOTFOUND, "there is no response \"%.80s\"", id);
    net_lock_give(d->lock);
    return st;
}

void api_store_usage(api *a)
{
    struct api_db *d = a->db;
    struct api_usage u;
    struct tm tm;
    char name[64], day[16];
    time_t now = time(NULL);
    gmtime_r(&now, &tm);
    strftime(day, sizeof day, "%Y-%m-%d", &tm);
    for (int i = 0; d && api_key_take_usage(a, i, name, &u); i++) {
        if (!u.n_request) continue;
        net_lock_take(d->lock);
        text(d->use, 1, name);
        text(d->use, 2, day);
        sqlite3_bind_int64(d->use, 3, u.n_request);
        sqlite3_bind_int64(d->use, 4, u.n_prompt);
        sqlite3_bind_int64(d->use, 5, u.n_answer);
        (void)run(d->use);
        net_lock_give(d->lock);
    }
}

#else

sl_status api_store_open(api *a, const char *path, sl_err *err)
{
    (void)a;
    if (!path) return SL_OK;
    return SL_FAIL(err, UNSUPPORTED,
                   "--db: this build has no SQLite: install libsqlite3-dev and "
                   "build again");
}

void api_store_close(api *a)
{
    (void)a;
}

static sl_status none(sl_err *err)
{
    return SL_FAIL(err, UNSUPPORTED, "this server was built without SQLite: it stores nothing");
}

sl_status api_store_put(api *a, const struct api_stored *s, sl_err *err)
{
    (void)a;
    (void)s;
    return none(err);
}

sl_status api_store_get(api *a, const char *id, const char *key, struct arena *arena,
                        struct api_stored *out, sl_err *err)
{
    (void)a;
    (void)id;
    (void)key;
    (void)arena;
    (void)out;
    return none(err);
}

sl_status api_store_item(api *a, const char *id, const char *key, struct arena *arena,
                         const struct json **out, sl_err *err)
{
    (void)a;
    (void)id;
    (void)key;
    (void)arena;
    *out = NULL;
    return none(err);
}

sl_status api_store_delete(api *a, const char *id, const char *key, sl_err *err)
{
    (void)a;
    (void)id;
    (void)key;
    return none(err);
}

void api_store_usage(api *a)
{
    (void)a;
}

#endif
