/* SPDX-License-Identifier: Apache-2.0 */
/* The web page: files of src/api/web as they are, inside the program. */
#include <string.h>

#include "api/api_internal.h"

/* F(symbol, file, path, content type) */
#define FILES(F)                                                                                   \
    F(index, "index.html", "/", "text/html; charset=utf-8")                                        \
    F(app, "app.js", "/app.js", "text/javascript; charset=utf-8")                                  \
    F(live, "live.js", "/live.js", "text/javascript; charset=utf-8")                               \
    F(text, "text.js", "/text.js", "text/javascript; charset=utf-8")                               \
    F(style, "style.css", "/style.css", "text/css; charset=utf-8")                                 \
    F(icon, "icon.svg", "/icon.svg", "image/svg+xml")

#define F(sym, file, path, type)                                                                   \
    __asm__(".section .rodata\n.global api_page_" #sym "\n.global api_page_" #sym                  \
            "_end\napi_page_" #sym ":\n.incbin \"" API_WEB "/" file "\"\napi_page_" #sym           \
            "_end:\n.byte 0\n.previous\n");                                                        \
    extern const char api_page_##sym[], api_page_##sym##_end[];
FILES(F)
#undef F

static const struct {
    const char *path, *type, *p, *end;
} file[] = {
#define F(sym, name, path, type) {path, type, api_page_##sym, api_page_##sym##_end},
    FILES(F)
#undef F
};

/* Nothing from elsewhere, nothing inline, no frame around it. */
static const char policy[] =
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

sl_status api_page(api *a, struct net_req *r, sl_err *err)
{
    (void)a;
    (void)err;
    for (int i = 0; i < BASE_COUNT_OF(file); i++) {
        if (strcmp(file[i].path, r->path) != 0) continue;
        net_reply_header(r, "Content-Security-Policy", policy);
        net_reply_header(r, "X-Content-Type-Options", "nosniff");
        net_reply_header(r, "Referrer-Policy", "no-referrer");
        net_reply_header(r, "Cross-Origin-Opener-Policy", "same-origin");
        net_reply_header(r, "Cache-Control", "no-cache");
        net_reply_static(r, 200, file[i].type, file[i].p, (size_t)(file[i].end - file[i].p));
        return SL_OK;
    }
    api_error(a, r, 404, "not_found", NULL, "there is no such path");
    return SL_OK;
}
