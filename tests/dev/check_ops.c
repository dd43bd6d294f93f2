/* SPDX-License-Identifier: Apache-2.0 */
/* Operators on rows, products, feed-forward and experts. */
#include "check.h"

static dev *open_dev(int n_thread, enum dev_acts acts)
{
    dev *d = NULL;
    MUST(dev_open("cpu", &(struct dev_opts){.n_thread = n_thread, .acts = acts}, &d, &err_));
    return d;
}

static dev_mat *load(dev *d, const struct weight *w, const struct weight *w2, int n,
                     enum dev_use use)
{
    dev_mat *m = NULL;
    MUST(dev_mat_load(d, &(struct dev_weights){.first = w, .second = w2, .n = n, .use = use}, &m,
                      &err_));
    return m;
}

static dev_act *act_for(dev *d, const dev_mat *m, int n_col, int n_tok)
{
    dev_act *a = NULL;
    MUST(dev_act_open(d, &(struct dev_inputs){&m, 1, n_col, n_tok}, &a, &err_));
    return a;
}

/* y = W x and its bound: c(n) u sum |w x|; with rounded activations rel more of the same sum. */
struct matrix {
    const double *w;
    int rows, cols;
};

static void product(struct matrix m, const float *x, double rel, double *y, double *tol)
{
    for (int r = 0; r < m.rows; r++) {
        double s = 0, a = 0;
        for (int i = 0; i < m.cols; i++) {
            s += m.w[(int64_t)r * m.cols + i] * x[i];
            a += fabs(m.w[(int64_t)r * m.cols + i] * x[i]);
        }
        y[r] = s;
        tol[r] = (2 * (m.cols + 4) * U + rel) * a + 1e-30;
    }
}

static void check_rows(void)
{
    dev *d = open_dev(2, DEV_ACTS_F32);
    reserve(d, 40, NULL, 0);
    for (int trial = 0; trial < 12; trial++) {
        int T = trial == 0 ? 1 : rand_int(1, 40), n = trial < 2 ? 576 : rand_int(1, 200);
        float *x = rand_array((int64_t)T * n), *r = rand_array((int64_t)T * n), *w = rand_array(n);
        float *x2 = get_mem(sizeof(float) * (size_t)(T * n)), *y = rand_array((int64_t)T * n);
        double *want = get_mem(sizeof(double) * (size_t)(T * n)),
               *tol = get_mem(sizeof(double) * (size_t)(T * n));
        memcpy(x2, x, sizeof(float) * (size_t)(T * n));
        struct dev_step b = {.n_tok = T};
        dev_norm(d, &b,
                 &(struct dev_norm){
                     .x = x2, .r = trial % 2 ? r : NULL, .w = w, .eps = 1e-5f, .n = n, .y = y});
        for (int t = 0; t < T; t++) {
            double ss = 0;
            for (int i = 0; i < n; i++) {
                double v = trial % 2 ? (double)(x[t * n + i] + r[t * n + i]) : x[t * n + i];
                ss += v * v;
            }
            for (int i = 0; i < n; i++) {
                double v = trial % 2 ? (double)(x[t * n + i] + r[t * n + i]) : x[t * n + i];
                want[t * n + i] = v / sqrt(ss / n + 1e-5) * w[i];
                tol[t * n + i] = fabs(want[t * n + i]) * (n + 8) * U;
            }
        }
        compare("norm", y, want, tol, (int64_t)T * n);
        memcpy(x2, x, sizeof(float) * (size_t)(T * n));
        dev_add(d, &b, &(struct dev_add){.x = x2, .y = r, .n = n});
        for (int i = 0; i < T * n; i++) {
            want[i] = x[i] + r[i];
            tol[i] = 0;
        }
        compare("add", x2, want, tol, (int64_t)T * n);
        dev_add(d, &b, &(struct dev_add){.x = x2, .y = r, .n = n, .scale = 0.37f});
        for (int i = 0; i < T * n; i++) {
            want[i] = 0.37f * (want[i] + r[i]);
            tol[i] = 2 * U * fabs(want[i]);
        }
        compare("add with a scale", x2, want, tol, (int64_t)T * n);
        int32_t idx[40];
        for (int t = 0; t < T; t++)
            idx[t] = rand_int(0, T - 1);
        b.hidden_row = idx; /* a norm that takes others' rows */
        struct dev_norm norm = {.x = x, .w = w, .eps = 1e-5f, .n = n, .y = x2};
        dev_norm(d, &b, &norm);
        norm.gather = true;
        norm.y = y;
        dev_norm(d, &b, &norm);
        for (int t = 0; t < T; t++)
            same_bits("norm of gathered rows", y + t * n, x2 + idx[t] * n, n);
    }
    dev_close(d);
}

/* cap tanh(x / cap), of one row as of many, on one thread as on several. */
static void check_cap(void)
{
    dev *d = open_dev(3, DEV_ACTS_F32), *alone = open_dev(1, DEV_ACTS_F32);
    reserve(d, 9, NULL, 0);
    reserve(alone, 1, NULL, 0);
    for (int trial = 0; trial < 12; trial++) {
        int T = rand_int(1, 9), n = trial < 2 ? 20011 : rand_int(1, 3000);
        float cap = trial % 3 ? 30 : 0.5f, *x = rand_array((int64_t)T * n);
        float *y = get_mem(sizeof(float) * (size_t)(T * n));
        float *one = get_mem(sizeof(float) * (size_t)n);
        double *want = get_mem(sizeof(double) * (size_t)(T * n)),
               *tol = get_mem(sizeof(double) * (size_t)(T * n));
        for (int i = 0; i < T * n; i++) {
            x[i] *= i % 5 == 0 ? 100 : i % 5 == 1 ? 1e-4f : 10;
            want[i] = cap * tanh((double)x[i] / cap);
            tol[i] = 8 * U * fabs(want[i]);
        }
        memcpy(y, x, sizeof(float) * (size_t)(T * n));
        dev_cap(d, &(struct dev_step){.n_tok = T}, &(struct dev_cap){.x = y, .n = n, .cap = cap});
        compare("cap", y, want, tol, (int64_t)T * n);
        memcpy(one, x + (int64_t)(T - 1) * n, sizeof(float) * (size_t)n);
        dev_cap(alone, &(struct dev_step){.n_tok = 1},
                &(struct dev_cap){.x = one, .n = n, .cap = cap});
        same_bits("cap of a row alone", one, y + (int64_t)(T - 1) * n, n);
    }
    dev_close(alone);
    dev_close(d);
}

/* With a mean taken away and something added, into other rows or the same. */
static void check_layer_norms(void)
{
    dev *d = open_dev(2, DEV_ACTS_F32);
    reserve(d, 40, NULL, 0);
    for (int trial = 0; trial < 8; trial++) {
        int T = rand_int(1, 40), n = trial ? rand_int(1, 200) : 128;
        float *x = rand_array((int64_t)T * n), *w = rand_array(n), *add = rand_array(n);
        float *y = trial % 2 ? x : get_mem(sizeof(float) * (size_t)(T * n)), far = 5 * rand_f();
        double *want = get_mem(sizeof *want * (size_t)(T * n)),
               *tol = get_mem(sizeof *tol * (size_t)(T * n));
        for (int t = 0; t < T; t++) {
            double mean = 0, ss = 0, most = 0;
            for (int i = 0; i < n; i++)
                mean += (double)(x[t * n + i] += far) / n;
            for (int i = 0; i < n; i++) {
                ss += pow(x[t * n + i] - mean, 2) / n;
                most = fmax(most, fabs((double)x[t * n + i]));
            }
            for (int i = 0; i < n; i++) {
                double scale = 1 / sqrt(ss + 1e-6), v = (x[t * n + i] - mean) * scale;
                want[t * n + i] = v * w[i] + add[i];
                tol[t * n + i] =
                    (n + 8) * U * (fabs(v * w[i]) + fabs(add[i]) + 2 * most * scale * fabs(w[i]));
            }
        }
        dev_norm(d, &(struct dev_step){.n_tok = T},
                 &(struct dev_norm){.x = x, .w = w, .b = add, .eps = 1e-6f, .n = n, .y = y});
        compare("layer norm", y, want, tol, (int64_t)T * n);
    }
    dev_close(d);
}

static void check_rope(void)
{
    dev *d = open_dev(2, DEV_ACTS_F32);
    reserve(d, 33, &(struct dev_op){.kind = DEV_OP_rope, .u.rope = {.n_rot = 136}}, 1);
    for (int trial = 0; trial < 24; trial++) {
        int T = rand_int(1, 33), H = rand_int(1, 6), dh = 8 * rand_int(1, 17);
        int n_rot = trial % 3 == 0 ? dh : 2 * rand_int(1, dh / 2), style = trial % 2,
            at = dh - n_rot;
        float *x = rand_array((int64_t)T * H * dh),
              *freq = get_mem(sizeof(float) * (size_t)(n_rot / 2));
        int32_t pos[33];
        for (int i = 0; i < n_rot / 2; i++)
            freq[i] = powf(10000.0f, -2.0f * (float)i / (float)n_rot);
        float mscale = trial % 4 ? 1.0f : 1.25f;
        for (int pass = 0; pass < 2;
             pass++) { /* the second finds some angles kept from the first */
            for (int t = 0; t < T; t++)
                if (pass == 0 || rand_int(0, 1)) pos[t] = rand_int(0, 5000);
            float *y = get_mem(sizeof(float) * (size_t)(T * H * dh));
            double *want = get_mem(sizeof(double) * (size_t)(T * H * dh));
            double *tol = get_mem(sizeof(double) * (size_t)(T * H * dh));
            memcpy(y, x, sizeof(float) * (size_t)(T * H * dh));
            struct dev_step b = {.n_tok = T, .pos = pos};
            dev_rope(d, &b,
                     &(struct dev_rope){.x = y + at,
                                        .n_head = H,
                                        .ldx = (int64_t)H * dh,
                                        .ldx_h = dh,
                                        .n_rot = n_rot,
                                        .style = style,
                                        .freq = freq,
                                        .mscale = mscale});
            for (int i = 0; i < T * H * dh; i++) {
                int t = i / (H * dh), k = i % dh - at, half = n_rot / 2;
                want[i] = x[i];
                tol[i] = 0;
                if (k < 0) continue;
                int pair = style ? k / 2 : k % half, second = style ? k & 1 : k >= half;
                int other = style ? i ^ 1 : second ? i - half : i + half;
                if (style) other = second ? i - 1 : i + 1;
                double a = (double)((float)pos[t] * freq[pair]);
                want[i] = mscale * (second ? x[i] * cos(a) + x[other] * sin(a)
                                           : x[i] * cos(a) - x[other] * sin(a));
                tol[i] = 6 * U * mscale * (fabs(x[i]) + fabs(x[other]));
            }
            compare("rope", y, want, tol, (int64_t)T * H * dh);
        }
    }
    dev_close(d);
}

static void check_matmul(void)
{
    static const enum tensor_dtype types[] = {TENSOR_F32, TENSOR_BF16, TENSOR_Q8_0, TENSOR_Q4_0};
    for (int trial = 0; trial < 10; trial++) {
        enum dev_acts acts = trial % 5 == 4 ? DEV_ACTS_AUTO : DEV_ACTS_F32;
        dev *d = open_dev(1 + trial % 3, acts);
        int cols = 32 * rand_int(1, 12), T = trial == 0 ? 1 : rand_int(1, 70),
            n_mat = rand_int(1, 4);
        struct weight w[4];
        dev_mat *m[4];
        const float *bias[4];
        struct dev_matmul p = {.n_row = T, .n_mat = n_mat};
        for (int i = 0; i < n_mat; i++) {
            w[i] = rand_weight(types[rand_int(0, 3)], rand_int(1, 150), cols);
            w[i].tensor_scale = 1.5f;
            p.w[i] = m[i] = load(d, &w[i], NULL, 1, DEV_USE_MATMUL);
            bias[i] = rand_int(0, 1) ? rand_array(w[i].rows) : NULL;
            end_with(m[i], (struct dev_epilogue){
                               .bias = bias[i], .n_bias = 1, .n_row = (int)w[i].rows});
            p.ldy[i] = rand_int(0, 1) ? w[i].rows + 3 : 0;
            p.y[i] = rand_array(T * (w[i].rows + 3));
        }
        reserve(d, 70, NULL, 0);
        float *x = rand_array((int64_t)T * cols);
        int32_t rows[70];
        for (int t = 0; t < T; t++)
            rows[t] = rand_int(0, T - 1);
        if (trial % 2) p.rows = rows;
        dev_act *a = NULL;
        MUST(dev_act_open(d, &(struct dev_inputs){(const dev_mat *const *)m, n_mat, cols, T}, &a,
                          &err_));
        struct dev_step b = {.n_tok = T};
        dev_prep(d, &b, &(struct dev_prep){.x = x, .n = cols, .act = a});
        p.act = a;
        dev_matmul(d, &b, &p);
        for (int i = 0; i < n_mat; i++) {
            int n = (int)w[i].rows;
            double *num = weight_numbers(&w[i]), *want = get_mem(sizeof(double) * (size_t)n);
            double *tol = get_mem(sizeof(double) * (size_t)n);
            for (int t = 0; t < T; t++) {
                product((struct matrix){num, n, cols}, x + (p.rows ? rows[t] : t) * cols,
                        acts == DEV_ACTS_F32 ? 0 : 0.02, want, tol);
                for (int r = 0; r < n && bias[i]; r++) {
                    want[r] += bias[i][r];
                    tol[r] += U * fabs(want[r]);
                }
                compare("matmul", p.y[i] + t * (p.ldy[i] ? p.ldy[i] : n), want, tol, n);
            }
        }
        dev_close(d);
    }
}

/* Several rows of a token, those of another token of the pass before: normed, and multiplied, in
 * more rows than there may be tokens. The same bits as of tokens of their own. */
static void check_heads_rows(void)
{
    for (int trial = 0; trial < 6; trial++) {
        dev *d = open_dev(1 + trial % 3, trial % 2 ? DEV_ACTS_AUTO : DEV_ACTS_F32);
        int N = rand_int(2, 5), T = trial ? rand_int(1, 9) : 1, n = 32 * rand_int(1, 9),
            rows = rand_int(1, 90), n_row = N * T;
        struct weight w = rand_weight(trial % 3 ? TENSOR_Q8_0 : TENSOR_F32, rows, n);
        dev_mat *m = load(d, &w, NULL, 1, DEV_USE_MATMUL);
        struct dev_matmul p = {.n_head = N, .n_mat = 1, .w = {m}};
        const struct dev_op op = {.kind = DEV_OP_matmul, .u.matmul = p};
        reserve(d, T, &op, 1);
        float *x = rand_array((int64_t)n_row * n), *gain = rand_array(n), *y[2];
        for (int i = 0; i < 2; i++)
            y[i] = rand_array((int64_t)n_row * rows);
        int32_t from[9];
        for (int t = 0; t < T; t++)
            from[t] = rand_int(0, T - 1);
        struct dev_step b = {.n_tok = T, .hidden_row = from}, one = {.n_tok = 1};
        struct dev_norm norm = {.x = x,
                                .w = gain,
                                .eps = 1e-6f,
                                .n = n,
                                .n_head = N,
                                .gather = true,
                                .act = act_for(d, m, n, n_row)};
        p.act = norm.act;
        p.y[0] = y[0];
        dev_norm(d, &b, &norm);
        dev_matmul(d, &b, &p);
        dev_act *a = act_for(d, m, n, 1);
        for (int i = 0; i < n_row; i++) {
            float *row = x + ((int64_t)from[i / N] * N + i % N) * n;
            const struct dev_norm alone = {.x = row, .w = gain, .eps = 1e-6f, .n = n, .act = a};
            dev_norm(d, &one, &alone);
            struct dev_matmul q = {.act = a, .n_mat = 1, .w = {m}, .y = {y[1] + i * rows}};
            dev_matmul(d, &one, &q);
        }
        same_bits("rows of streams", y[0], y[1], (int64_t)n_row * rows);
        dev_close(d);
    }
}

/* Of a router in f32 whose numbers are bf16 half of the bytes are kept, and no bit of a product
 * changes: against the same with a row more, which has a number that is none. */
static void check_narrow(void)
{
    for (int trial = 0; trial < 8; trial++) {
        dev *d = open_dev(1 + trial % 2, trial % 4 ? DEV_ACTS_AUTO : DEV_ACTS_F32);
        int T = trial ? rand_int(1, 70) : 1, rows = 16 * rand_int(1, 9), cols = rand_int(40, 300);
        struct weight wide = rand_weight(TENSOR_F32, rows + 1, cols);
        float *v = get_mem(sizeof *v * (size_t)((rows + 1) * cols));
        memcpy(v, wide.data, sizeof *v * (size_t)((rows + 1) * cols));
        for (int i = 0; i < rows * cols; i++)
            v[i] = fp_bf16_to_f32(fp_f32_to_bf16(v[i]));
        v[rows * cols + cols / 2] = 1.0f + 0x1p-8f;
        wide.data = (const uint8_t *)v;
        struct weight narrow = weight_rows(&wide, 0, rows);
        dev_mat *m[2] = {load(d, &narrow, NULL, 1, DEV_USE_EXACT),
                         load(d, &wide, NULL, 1, DEV_USE_EXACT)};
        if (dev_mat_bytes(m[0]) * 2 * (rows + 16) != dev_mat_bytes(m[1]) * rows)
            FAIL("bytes of a router of bf16 numbers: %d of %d", (int)dev_mat_bytes(m[0]),
                 (int)dev_mat_bytes(m[1]));
        reserve(d, 70, NULL, 0);
        float *x = rand_array((int64_t)T * cols), *y[2];
        struct dev_step b = {.n_tok = T};
        for (int i = 0; i < 2; i++) {
            dev_act *a = act_for(d, m[i], cols, T);
            y[i] = get_mem(sizeof(float) * (size_t)(T * (rows + 1)));
            dev_prep(d, &b, &(struct dev_prep){.x = x, .n = cols, .act = a});
            struct dev_matmul p = {.act = a, .n_row = T, .n_mat = 1, .w = {m[i]}, .y = {y[i]}};
            p.ldy[0] = rows + 1;
            dev_matmul(d, &b, &p);
        }
        for (int t = 0; t < T; t++)
            same_bits("router of bf16 numbers", y[0] + t * (rows + 1), y[1] + t * (rows + 1), rows);
        dev_close(d);
    }
}

static void check_embed(void)
{
    dev *d = open_dev(2, DEV_ACTS_AUTO);
    struct weight w = rand_weight(TENSOR_Q8_0, 10, 96);
    dev_mat *m = load(d, &w, NULL, 1, DEV_USE_EMBED);
    reserve(d, 70, NULL, 0);
    int32_t ids[70];
    float y[70 * 96], want[96];
    for (int t = 0; t < 70; t++)
        ids[t] = rand_int(0, 9);
    struct dev_step b = {.n_tok = 70, .ids = ids};
    dev_embed(d, &b, &(struct dev_embed){.w = m, .y = y, .scale = 2.0f});
    for (int t = 0; t < 70; t++) {
        weight_dequant(&w, ids[t], 0, 96, want);
        for (int i = 0; i < 96; i++)
            want[i] *= 2.0f;
        same_bits("embed", y + t * 96, want, 96);
    }
    if (dev_mat_rows(m) != 10 || dev_mat_cols(m) != 96 || dev_mat_bytes(m) < 10 * 96)
        FAIL("shape of a matrix");
    dev_close(d);
}

static void check_heads(void)
{
    for (int trial = 0; trial < 4; trial++) {
        dev *d = open_dev(1 + trial, DEV_ACTS_F32);
        int H = rand_int(1, 5), T = rand_int(1, 20), cols = 32 * rand_int(1, 3),
            rows = rand_int(1, 70);
        struct weight w[5];
        for (int h = 0; h < H; h++)
            w[h] = rand_weight(trial % 2 ? TENSOR_Q8_0 : TENSOR_F32, rows, cols);
        dev_mat *m = load(d, w, NULL, H, DEV_USE_EXACT);
        struct dev_op op = {.kind = DEV_OP_matmul_heads, .u.matmul_heads = {.w = m, .n_head = H}};
        reserve(d, 20, &op, 1);
        float *x = rand_array((int64_t)T * H * (cols + 5)), *y = rand_array((int64_t)T * H * rows);
        struct dev_step b = {.n_tok = T};
        dev_matmul_heads(d, &b,
                         &(struct dev_matmul_heads){.w = m,
                                                    .n_head = H,
                                                    .x = x,
                                                    .ldx = (int64_t)H * (cols + 5),
                                                    .ldx_h = cols + 5,
                                                    .y = y,
                                                    .ldy = (int64_t)H * rows,
                                                    .ldy_h = rows});
        double want[70], tol[70];
        for (int h = 0; h < H; h++) {
            double *num = weight_numbers(&w[h]);
            for (int t = 0; t < T; t++) {
                product((struct matrix){num, rows, cols}, x + (t * H + h) * (cols + 5), 0, want,
                        tol);
                compare("matmul_heads", y + (t * H + h) * rows, want, tol, rows);
            }
        }
        dev_close(d);
    }
}

/* One feed-forward row in double; slack: what errors before the last product may do to it. */
struct ffn_of {
    const double *gate, *up, *down;
    int D, F;
    struct glu glu;
    const float *gate_up_bias, *down_bias; /* of this block, or NULL */
};

/* gt, ut: how far gate and up may be off; afterwards gv is the hidden value and gt its own. The
 * slope of g sigmoid(a g) is at most 1.1, whatever a is, and with the cube 1.2. */
static void glu_row(const struct ffn_of *f, double *gv, double *gt, const double *uv,
                    const double *ut)
{
    double limit = f->glu.limit > 0 ? f->glu.limit : 1e300,
           alpha = f->glu.alpha > 0 ? f->glu.alpha : 1;
    for (int i = 0; i < f->F; i++) {
        double x = gv[i], u = uv[i], wide = 0;
        if (f->gate_up_bias) {
            x += f->gate_up_bias[i];
            u += f->gate_up_bias[f->F + i];
            wide = U * (fabs(x) + fabs(u));
        }
        if (!(f->glu.after > 0)) x = fmin(x, limit);
        u = fmax(fmin(u, limit), -limit) + f->glu.plus;
        double z = alpha * (x + f->glu.cubic * x * x * x), s = x / (1 + exp(-z));
        if (f->glu.cubic > 0) /* as it is defined */
            s = x / 2 * (1 + tanh(sqrt(2 / 3.14159265358979323846) * (x + 0.044715 * x * x * x)));
        if (f->glu.after > 0) s = fmin(s, limit);
        gt[i] = (f->glu.cubic > 0 ? 1.2 : 1.1) * (gt[i] + wide) * fabs(u) +
                fabs(s) * (ut[i] + wide + U * fabs(u)) + (10 + 4 * fabs(z)) * U * fabs(s * u);
        gv[i] = s * u;
    }
}

static void ffn_row(const struct ffn_of *f, const float *x, double *y, double *tol)
{
    int D = f->D, F = f->F;
    double *gv = get_mem(sizeof(double) * (size_t)F), *uv = get_mem(sizeof(double) * (size_t)F);
    double *gt = get_mem(sizeof(double) * (size_t)F), *ut = get_mem(sizeof(double) * (size_t)F);
    float *h = get_mem(sizeof(float) * (size_t)F);
    product((struct matrix){f->gate, F, D}, x, 0, gv, gt);
    product((struct matrix){f->up, F, D}, x, 0, uv, ut);
    glu_row(f, gv, gt, uv, ut);
    for (int i = 0; i < F; i++)
        h[i] = (float)gv[i];
    product((struct matrix){f->down, D, F}, h, 0, y, tol);
    for (int r = 0; r < D; r++) {
        double s = 0;
        y[r] = 0;
        for (int i = 0; i < F; i++) {
            y[r] += f->down[(int64_t)r * F + i] * gv[i];
            s += fabs(f->down[(int64_t)r * F + i]) * (gt[i] + U * fabs(gv[i]));
        }
        if (f->down_bias) y[r] += f->down_bias[r];
        tol[r] += s + (f->down_bias ? U * fabs(y[r]) : 0);
    }
}

/* None in every other trial, gelu in some. */
static struct glu rand_glu(int trial)
{
    if (trial % 6 == 4) return GLU_GELU_TANH;
    if (trial % 2 == 0) return (struct glu){0};
    return (struct glu){.limit = rand_int(0, 2) ? 0.5f : 0,
                        .alpha = rand_int(0, 1) ? 1.702f : 0,
                        .plus = (float)rand_int(0, 1),
                        .after = (float)rand_int(0, 1)};
}

/* gate_up and down of n blocks of such shapes; biases: of all of them, or NULL. */
static void end_block(const struct ffn_of *f, int n, const dev_mat *gate_up, const dev_mat *down)
{
    end_with(gate_up, (struct dev_epilogue){f->gate_up_bias, n, 2 * f->F, NULL, f->glu});
    end_with(down, (struct dev_epilogue){.bias = f->down_bias, .n_bias = n, .n_row = f->D});
}

static void check_ffn(void)
{
    for (int trial = 0; trial < 8; trial++) {
        dev *d = open_dev(1 + trial % 4, DEV_ACTS_F32);
        int D = 32 * rand_int(1, 4), F = trial == 1 ? 96 : 8 * rand_int(4, 20),
            T = trial == 0 ? 1 : rand_int(1, 40);
        F = F / 32 * 32;
        struct weight wg = rand_weight(TENSOR_F32, F, D), wu = rand_weight(TENSOR_F32, F, D);
        struct weight wd = rand_weight(TENSOR_Q8_0, D, F);
        dev_mat *gu = load(d, &wg, &wu, 1, DEV_USE_MATMUL),
                *dn = load(d, &wd, NULL, 1, DEV_USE_MATMUL);
        reserve(d, 40, NULL, 0);
        dev_act *a = act_for(d, gu, D, T), *ha = act_for(d, dn, F, T);
        float *x = rand_array((int64_t)T * D), *h = rand_array((int64_t)T * F),
              *y = rand_array((int64_t)T * D);
        struct dev_step b = {.n_tok = T};
        struct ffn_of of = {weight_numbers(&wg),
                            weight_numbers(&wu),
                            weight_numbers(&wd),
                            D,
                            F,
                            rand_glu(trial),
                            NULL,
                            NULL};
        if (trial % 4 == 2) of.gate_up_bias = rand_array(2 * F);
        if (trial % 4 >= 2) of.down_bias = rand_array(D);
        end_block(&of, 1, gu, dn);
        dev_prep(d, &b, &(struct dev_prep){.x = x, .n = D, .act = a});
        dev_ffn(d, &b,
                &(struct dev_ffn){.act = a,
                                  .gate_up = gu,
                                  .down = dn,
                                  .h_act = ha,
                                  .h = h,
                                  .y = y});
        double want[128], tol[128];
        for (int t = 0; t < T; t++) {
            ffn_row(&of, x + t * D, want, tol);
            compare("ffn", y + t * D, want, tol, D);
        }
        dev_close(d);
    }
}

/* Hidden values prepared where those of a wider layer fit too: the same bits as with a buffer of
 * their own. */
static void check_ffn_beside_wider(void)
{
    enum { T = 40 };
    for (int trial = 0; trial < 4; trial++) {
        dev *d = open_dev(1 + trial, DEV_ACTS_AUTO);
        int D = 32 * rand_int(1, 4), F = 32 * rand_int(1, 4), wide = F + 32 * rand_int(1, 6);
        struct weight wg = rand_weight(TENSOR_Q4_0, F, D), wu = rand_weight(TENSOR_Q4_0, F, D);
        struct weight wd = rand_weight(TENSOR_Q8_0, D, F), ww = rand_weight(TENSOR_Q8_0, D, wide);
        dev_mat *gu = load(d, &wg, &wu, 1, DEV_USE_PLAIN),
                *dn = load(d, &wd, NULL, 1, DEV_USE_PLAIN),
                *other = load(d, &ww, NULL, 1, DEV_USE_MATMUL);
        reserve(d, T, NULL, 0);
        dev_act *a = act_for(d, gu, D, T), *own = act_for(d, dn, F, T), *shared = NULL;
        MUST(dev_act_open(d, &(struct dev_inputs){(const dev_mat *[]){dn, other}, 2, wide, T},
                          &shared, &err_));
        float *x = rand_array(T * D), *h = rand_array((int64_t)T * wide), *y = rand_array(T * D),
              *z = rand_array(T * D);
        struct dev_step b = {.n_tok = T};
        dev_prep(d, &b, &(struct dev_prep){.x = x, .n = D, .act = a});
        struct dev_ffn f = {.act = a, .gate_up = gu, .down = dn, .h_act = own, .h = h, .y = y};
        dev_ffn(d, &b, &f);
        f.h_act = shared;
        f.y = z;
        dev_ffn(d, &b, &f);
        g.n_checked++;
        if (memcmp(y, z, sizeof(float) * (size_t)(T * D)) != 0)
            FAIL("ffn beside a wider layer: F %d, %d", F, wide);
        dev_close(d);
    }
}

/* p's results, of x [T, D] through the experts of, whose one shape is of[0]'s. */
static void check_moe_rows(const struct ffn_of *of, const float *x, const struct dev_moe *p, int T)
{
    int D = of->D, K = p->k;
    for (int t = 0; t < T; t++) {
        double want[96] = {0}, tol[96] = {0}, one[96], one_tol[96];
        for (int k = 0; k < K; k++) {
            double w = p->weight[t * K + k];
            ffn_row(&of[p->id[t * K + k]], x + t * D, one, one_tol);
            for (int i = 0; i < D; i++) {
                want[i] += w * one[i];
                tol[i] += fabs(w) * (one_tol[i] + (K + 2) * U * fabs(one[i]));
            }
        }
        for (int i = 0; i < D && p->add; i++) {
            want[i] += p->add[t * D + i];
            tol[i] += 2 * U * (fabs(want[i]) + fabs(p->add[t * D + i]));
        }
        compare("moe", p->y + t * D, want, tol, D);
    }
}

static void check_moe(void)
{
    for (int trial = 0; trial < 9; trial++) {
        dev *d = open_dev(1 + trial % 4, DEV_ACTS_F32);
        int D = 32 * rand_int(1, 3), F = 32 * rand_int(1, 3), E = rand_int(2, 9),
            K = rand_int(1, E < 4 ? E : 4);
        int T = trial == 0 ? 1 : rand_int(1, 50);
        struct weight wg[9], wu[9], wd[9];
        struct ffn_of of[9];
        struct glu glu = rand_glu(trial);
        const float *gate_up_bias = NULL, *down_bias = NULL;
        if (trial % 4 >= 2) gate_up_bias = rand_array((int64_t)E * 2 * F);
        if (trial % 4 == 3) down_bias = rand_array((int64_t)E * D);
        for (int e = 0; e < E; e++) {
            wg[e] = rand_weight(TENSOR_Q4_0, F, D);
            wu[e] = rand_weight(TENSOR_Q4_0, F, D);
            wd[e] = rand_weight(TENSOR_Q8_0, D, F);
            wg[e].tensor_scale = 1.0f + 0.25f * (float)e; /* each expert its own */
            wu[e].tensor_scale = 2.0f;
            wd[e].tensor_scale = 0.5f + (float)e;
            of[e] = (struct ffn_of){weight_numbers(&wg[e]),
                                    weight_numbers(&wu[e]),
                                    weight_numbers(&wd[e]),
                                    D,
                                    F,
                                    glu,
                                    gate_up_bias ? gate_up_bias + e * 2 * F : NULL,
                                    down_bias ? down_bias + e * D : NULL};
        }
        dev_mat *gu = load(d, wg, wu, E, DEV_USE_EXPERTS),
                *dn = load(d, wd, NULL, E, DEV_USE_EXPERTS);
        end_block(&of[0], E, gu, dn);
        struct dev_op op = {.kind = DEV_OP_moe,
                            .u.moe = {.k = K, .n_expert = E, .gate_up = gu, .down = dn}};
        reserve(d, 50, &op, 1);
        dev_act *a = act_for(d, gu, D, T);
        float *x = rand_array((int64_t)T * D), *y = rand_array((int64_t)T * D),
              *weight = rand_array((int64_t)T * K);
        float *add = rand_array((int64_t)T * D);
        int32_t *id = get_mem(sizeof(int32_t) * (size_t)(T * K));
        for (int t = 0; t < T; t++)
            for (int k = 0; k < K; k++) /* distinct, skewed to low numbers */
                id[t * K + k] =
                    k == 0 ? rand_int(0, rand_int(0, E - 1)) : (id[t * K + k - 1] + 1) % E;
        struct dev_step b = {.n_tok = T};
        dev_prep(d, &b, &(struct dev_prep){.x = x, .n = D, .act = a});
        dev_moe(d, &b,
                &(struct dev_moe){.act = a,
                                  .k = K,
                                  .n_expert = E,
                                  .id = id,
                                  .weight = weight,
                                  .gate_up = gu,
                                  .down = dn,
                                  .add = trial % 2 ? add : NULL,
                                  .y = y});
        check_moe_rows(
            of, x,
            &(struct dev_moe){
                .k = K, .id = id, .weight = weight, .y = y, .add = trial % 2 ? add : NULL},
            T);
        dev_close(d);
    }
}

void check_ops(void)
{
    check_rows();
    check_cap();
    check_layer_norms();
    check_rope();
    check_embed();
    check_matmul();
    check_narrow();
    check_heads_rows();
    check_heads();
    check_ffn();
    check_ffn_beside_wider();
    check_moe();
}
