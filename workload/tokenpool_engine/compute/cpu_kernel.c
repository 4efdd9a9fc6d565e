/* One packed step of a Llama-shaped model on CPUs with AVX-512, in one call: no Python, and no interpreter lock, between
 * its layers. `lean.py` computes the same with torch and is what this is tested against.
 *
 * Everything that is multiplied lies in panels of 32 columns: [depth / 2][32][2] bfloat16, or [depth / 4][32][4] int8.
 * A weight is panels of output columns; a page of keys is one panel whose columns are its 32 tokens; a page of values is
 * head_size / 32 panels whose depth are its tokens. So one small matrix product serves linears and attention alike.
 *
 * Activations are float32. `FMA` widens bfloat16 weights in registers, `DOT` rounds activations to bfloat16 and uses
 * vdpbf16ps, `INT8` quantizes each row by itself (its result does not depend on its neighbours) and uses vpdpbusd. Which
 * of the first two is faster differs between CPUs (on some Xeons FMA by 1.8), so the caller measures.
 */
#define _GNU_SOURCE
#include <immintrin.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define INLINE static inline __attribute__((always_inline))
#define UNROLL _Pragma("GCC unroll 12")

enum { COLUMNS = 32, ROWS = 12, PAGE = 32, CHUNK = 8 * ROWS, QUERY_ROWS = 48, SPINS = 4000, AHEAD = 32 };
enum { FMA = 0, DOT = 1, INT8 = 2 };

typedef uint16_t bf16;

/* --- what Python hands over; the same fields in the same order as in native.py --------------------------------------- */

typedef struct {
    int32_t depth, columns;  /* columns as the model has them; panels are filled up with zeros */
    const void *panels;
    const float *scales;     /* int8 only: per column */
    const int32_t *offsets;  /* int8 only: 128 times the sum of a column, for activations are stored with an offset */
} Linear;

typedef struct {
    Linear qkv, out, gate_up, down;  /* gate_up: panels of gate and up take turns */
    const float *attention_norm, *mlp_norm, *query_norm, *key_norm, *qkv_bias;  /* the last three may be null */
    bf16 *keys, *values;             /* [pages][kv_heads][PAGE * head_size] */
    int64_t window;                  /* positions a token sees, itself included; 0: all */
} Layer;

typedef struct {
    int32_t layers, hidden, inner, heads, kv_heads, head_size, vocabulary, kind;
    float epsilon, scaling;
    const bf16 *embedding;      /* [vocabulary][hidden]; null: the head's, which is not int8 then */
    const float *cosine, *sine; /* [positions][head_size / 2] */
    const float *norm;
    const Layer *layer;
    Linear head;
} Model;

typedef struct {
    int32_t first, size, start, pages_at; /* rows first … are positions start … ; pages[pages_at …] hold position 0 … */
} Span;

typedef struct {
    int32_t rows, spans, samples;
    const int32_t *ids, *pages, *sample_rows;
    const Span *span;
    float *logits;  /* [samples][vocabulary], or null when only the best ids are wanted */
    int32_t *best;  /* [samples]; -1 where no logit is a number */
} Step;

/* --- a worker pool whose threads sleep between steps ------------------------------------------------------------------ */

typedef struct Shared Shared;

typedef struct {
    Shared *shared;
    int index, phase;
    float *scores, *queries, *answers;
    const bf16 **panels;
    float *best_value;
    int32_t *best_id;
    pthread_t thread;
} Worker;

typedef struct {
    int32_t span, head, from, to; /* query tokens from … to - 1 of the span */
} Item;

struct Shared {
    Model model;
    int threads, max_rows, context;
    const Step *step;
    Worker *workers;
    /* rows */
    int32_t *row_span;
    float *x, *normed, *qkv, *wide; /* residual stream; linear input; fused projections; attention or mlp output */
    uint8_t *narrow;                /* rounded or quantized linear input */
    float *row_scale;
    Item *items;
    int item_count, item_room;
    /* threads */
    pthread_mutex_t lock;
    pthread_cond_t wake;
    long round;
    int ending;
    atomic_int *next;
    int phases;
    atomic_int arrived, turn;
};

static void barrier(Shared *s)
{
    if (s->threads == 1) return;
    int turn = atomic_load_explicit(&s->turn, memory_order_acquire);
    if (atomic_fetch_add(&s->arrived, 1) == s->threads - 1) {
        atomic_store(&s->arrived, 0);
        atomic_store_explicit(&s->turn, turn + 1, memory_order_release);
        return;
    }
    /* Whoever is missing may have lost its core to another thread, perhaps to the one that serves HTTP: give ours up. */
    for (int spins = 0; atomic_load_explicit(&s->turn, memory_order_acquire) == turn; spins++)
        if (spins < SPINS) _mm_pause(); else sched_yield();
}

INLINE int take(Worker *w) { return atomic_fetch_add_explicit(&w->shared->next[w->phase * 16], 1, memory_order_relaxed); }

INLINE void end_phase(Worker *w)
{
    w->phase++;
    barrier(w->shared);
}

#define FOR_EACH(i, count) for (int i; (i = take(w)) < (count);)

/* --- small vectors ------------------------------------------------------------------------------------------------------ */

INLINE float widen(bf16 value)
{
    uint32_t bits = (uint32_t)value << 16;
    float wide;
    memcpy(&wide, &bits, 4);
    return wide;
}

INLINE bf16 narrow(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, 4);
    if ((bits & 0x7fffffff) > 0x7f800000) return (bf16)((bits >> 16) | 0x40); /* not a number stays none */
    return (bf16)((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

INLINE __m512 exponential(__m512 x)
{
    /* 2^n * e^r with |r| <= ln(2) / 2, e^r by its series; below -87 it is zero for softmax. */
    x = _mm512_max_ps(x, _mm512_set1_ps(-87.0f));
    __m512 n = _mm512_roundscale_ps(_mm512_mul_ps(x, _mm512_set1_ps(1.44269504f)), 0);
    __m512 r = _mm512_fnmadd_ps(n, _mm512_set1_ps(0.693359375f), x);
    r = _mm512_fnmadd_ps(n, _mm512_set1_ps(-2.12194440e-4f), r);
    __m512 e = _mm512_set1_ps(1.0f / 720);
    e = _mm512_fmadd_ps(e, r, _mm512_set1_ps(1.0f / 120));
    e = _mm512_fmadd_ps(e, r, _mm512_set1_ps(1.0f / 24));
    e = _mm512_fmadd_ps(e, r, _mm512_set1_ps(1.0f / 6));
    e = _mm512_fmadd_ps(e, r, _mm512_set1_ps(0.5f));
    e = _mm512_fmadd_ps(e, r, _mm512_set1_ps(1.0f));
    e = _mm512_fmadd_ps(e, r, _mm512_set1_ps(1.0f));
    return _mm512_scalef_ps(e, n);
}

static void rms_norm(const float *x, const float *weight, float epsilon, int size, float *out)
{
    __m512 squares = _mm512_setzero_ps();
    for (int i = 0; i < size; i += 16) {
        __m512 v = _mm512_loadu_ps(x + i);
        squares = _mm512_fmadd_ps(v, v, squares);
    }
    __m512 scale = _mm512_set1_ps(1.0f / __builtin_sqrtf(_mm512_reduce_add_ps(squares) / size + epsilon));
    for (int i = 0; i < size; i += 16)
        _mm512_storeu_ps(out + i, _mm512_mul_ps(_mm512_mul_ps(_mm512_loadu_ps(x + i), scale), _mm512_loadu_ps(weight + i)));
}

/* What to fetch while a tile is computed: two lines a round from `at`, which jumps to `then` after round `turn`. */
typedef struct {
    const char *at, *then;
    int turn, stride;
} Fetch;

INLINE void fetch(Fetch *f, int round)
{
    _mm_prefetch(f->at, _MM_HINT_T1);
    _mm_prefetch(f->at + 64, _MM_HINT_T1);
    f->at = round == f->turn ? f->then : f->at + f->stride;
}

/* --- one tile: rows <= 12 of activations times one column of panels ------------------------------------------------------ */

INLINE void store_tile(const int rows, __m512 sums[ROWS][2], float *out, size_t stride)
{
    UNROLL
    for (int m = 0; m < rows; m++) {
        _mm512_storeu_ps(out + m * stride, sums[m][0]);
        _mm512_storeu_ps(out + m * stride + 16, sums[m][1]);
    }
}

INLINE void tile_fma(const int rows, const float *a, size_t lda, const bf16 *const *panels, int count, int pairs,
                     Fetch ahead, float *out, size_t stride)
{
    const __m512i high = _mm512_set1_epi32((int)0xffff0000);
    __m512 sums[ROWS][2];
    UNROLL
    for (int m = 0; m < rows; m++) sums[m][0] = sums[m][1] = _mm512_setzero_ps();
    for (int p = 0; p < count; p++) {
        const bf16 *b = panels[p];
        for (int k = 0; k < pairs; k++, a += 2, b += 2 * COLUMNS) {
            fetch(&ahead, k);
            __m512i w0 = _mm512_loadu_si512(b), w1 = _mm512_loadu_si512(b + COLUMNS);
            __m512 b0 = _mm512_castsi512_ps(_mm512_slli_epi32(w0, 16));
            __m512 b1 = _mm512_castsi512_ps(_mm512_slli_epi32(w1, 16));
            UNROLL
            for (int m = 0; m < rows; m++) {
                __m512 v = _mm512_set1_ps(a[m * lda]);
                sums[m][0] = _mm512_fmadd_ps(b0, v, sums[m][0]);
                sums[m][1] = _mm512_fmadd_ps(b1, v, sums[m][1]);
            }
            b0 = _mm512_castsi512_ps(_mm512_and_si512(w0, high));
            b1 = _mm512_castsi512_ps(_mm512_and_si512(w1, high));
            UNROLL
            for (int m = 0; m < rows; m++) {
                __m512 v = _mm512_set1_ps(a[m * lda + 1]);
                sums[m][0] = _mm512_fmadd_ps(b0, v, sums[m][0]);
                sums[m][1] = _mm512_fmadd_ps(b1, v, sums[m][1]);
            }
        }
    }
    store_tile(rows, sums, out, stride);
}

INLINE __m512i four_bytes(const void *at)
{
    int32_t word;
    memcpy(&word, at, 4);
    return _mm512_set1_epi32(word);
}

INLINE void tile_dot(const int rows, const bf16 *a, size_t lda, const bf16 *b, int pairs, Fetch ahead, float *out,
                     size_t stride)
{
    __m512 sums[ROWS][2];
    UNROLL
    for (int m = 0; m < rows; m++) sums[m][0] = sums[m][1] = _mm512_setzero_ps();
    for (int k = 0; k < pairs; k++, a += 2, b += 2 * COLUMNS) {
        fetch(&ahead, k);
        __m512bh b0 = (__m512bh)_mm512_loadu_si512(b), b1 = (__m512bh)_mm512_loadu_si512(b + COLUMNS);
        UNROLL
        for (int m = 0; m < rows; m++) {
            __m512bh v = (__m512bh)four_bytes(a + m * lda);
            sums[m][0] = _mm512_dpbf16_ps(sums[m][0], b0, v);
            sums[m][1] = _mm512_dpbf16_ps(sums[m][1], b1, v);
        }
    }
    store_tile(rows, sums, out, stride);
}

INLINE void tile_int8(const int rows, const uint8_t *a, size_t lda, const int8_t *b, int quads, const float *row_scales,
                      const float *scales, const int32_t *offsets, Fetch ahead, float *out, size_t stride)
{
    __m512i sums[ROWS][2];
    UNROLL
    for (int m = 0; m < rows; m++) sums[m][0] = sums[m][1] = _mm512_setzero_si512();
    for (int k = 0; k < quads; k++, a += 4, b += 4 * COLUMNS) {
        fetch(&ahead, k);
        __m512i b0 = _mm512_loadu_si512(b), b1 = _mm512_loadu_si512(b + 2 * COLUMNS);
        UNROLL
        for (int m = 0; m < rows; m++) {
            __m512i v = four_bytes(a + m * lda);
            sums[m][0] = _mm512_dpbusd_epi32(sums[m][0], v, b0);
            sums[m][1] = _mm512_dpbusd_epi32(sums[m][1], v, b1);
        }
    }
    UNROLL
    for (int m = 0; m < rows; m++) {
        __m512 scale = _mm512_set1_ps(row_scales[m]);
        for (int half = 0; half < 2; half++) {
            __m512i sum = _mm512_sub_epi32(sums[m][half], _mm512_loadu_si512(offsets + 16 * half));
            __m512 value = _mm512_mul_ps(_mm512_cvtepi32_ps(sum), _mm512_loadu_ps(scales + 16 * half));
            _mm512_storeu_ps(out + m * stride + 16 * half, _mm512_mul_ps(value, scale));
        }
    }
}

#define BY_ROWS(rows, CALL) \
    switch (rows) { \
    case 1: CALL(1); break; case 2: CALL(2); break; case 3: CALL(3); break; case 4: CALL(4); break; \
    case 5: CALL(5); break; case 6: CALL(6); break; case 7: CALL(7); break; case 8: CALL(8); break; \
    case 9: CALL(9); break; case 10: CALL(10); break; case 11: CALL(11); break; default: CALL(12); }

static void multiply_fma(int rows, const float *a, size_t lda, const bf16 *const *panels, int count, int pairs, Fetch ahead,
                         float *out, size_t stride)
{
#define CALL(n) tile_fma(n, a, lda, panels, count, pairs, ahead, out, stride)
    BY_ROWS(rows, CALL)
#undef CALL
}

static void multiply_dot(int rows, const bf16 *a, size_t lda, const bf16 *b, int pairs, Fetch ahead, float *out,
                     size_t stride)
{
#define CALL(n) tile_dot(n, a, lda, b, pairs, ahead, out, stride)
    BY_ROWS(rows, CALL)
#undef CALL
}

static void multiply_int8(int rows, const uint8_t *a, size_t lda, const int8_t *b, int quads, const float *row_scales,
                          const float *scales, const int32_t *offsets, Fetch ahead, float *out, size_t stride)
{
#define CALL(n) tile_int8(n, a, lda, b, quads, row_scales, scales, offsets, ahead, out, stride)
    BY_ROWS(rows, CALL)
#undef CALL
}

/* --- linears ---------------------------------------------------------------------------------------------------------------- */

/* Rows of a linear's input in the form that its kind multiplies; a phase of its own, unless nothing is to be done. */
static void prepare(Worker *w, const float *rows, int count, int depth)
{
    Shared *s = w->shared;
    if (s->model.kind == FMA) return;
    FOR_EACH(r, count) {
        const float *x = rows + (size_t)r * depth;
        if (s->model.kind == DOT) {
            bf16 *out = (bf16 *)s->narrow + (size_t)r * depth;
            for (int i = 0; i < depth; i++) out[i] = narrow(x[i]);
            continue;
        }
        __m512 largest = _mm512_set1_ps(1e-12f);
        for (int i = 0; i < depth; i += 16) largest = _mm512_max_ps(largest, _mm512_abs_ps(_mm512_loadu_ps(x + i)));
        float scale = _mm512_reduce_max_ps(largest) / 127;
        s->row_scale[r] = scale;
        __m512 inverse = _mm512_set1_ps(1 / scale);
        for (int i = 0; i < depth; i += 16) {
            __m512i q = _mm512_cvtps_epi32(_mm512_mul_ps(_mm512_loadu_ps(x + i), inverse));
            q = _mm512_add_epi32(q, _mm512_set1_epi32(128));
            _mm_storeu_si128((__m128i *)(s->narrow + (size_t)r * depth + i), _mm512_cvtusepi32_epi8(q));
        }
    }
    end_phase(w);
}

/* Weights come from memory, and the hardware's own look-ahead ends with a page of 4 KiB. The first tile of a panel reads
 * it a little ahead of itself. When there are several, the first two fetch the panel that this worker takes next. */
INLINE Fetch fetch_for(const void *panel, const void *next, int rounds, int tile, int tiles)
{
    if (tiles == 1) return (Fetch){(const char *)panel + AHEAD * 128, next, rounds - AHEAD - 1, 128};
    if (tile < 2) return (Fetch){(const char *)next + tile * rounds * 64, next, -1, 64};
    return (Fetch){panel, panel, -1, 0};
}

INLINE int panels_of(const Linear *l) { return (l->columns + COLUMNS - 1) / COLUMNS; }
INLINE int chunks_of(int rows) { return (rows + CHUNK - 1) / CHUNK; }

/* Some rows of one chunk; `next` is the panel after this one for this worker. */
typedef struct {
    int panel, next, row, rows, end, index, count;
} Tile;

/* Rows left are spread evenly over tiles, since a tile of one row costs as much memory as one of twelve. */
INLINE void spread(Tile *t) { t->rows = (t->end - t->row + t->count - t->index - 1) / (t->count - t->index); }

INLINE Tile first_tile(int item, int following, int rows, int panels)
{
    int chunks = chunks_of(rows), row = item % chunks * CHUNK, end = row + CHUNK < rows ? row + CHUNK : rows;
    int next = following < panels * chunks ? following / chunks : item / chunks;
    Tile t = {item / chunks, next, row, 0, end, 0, (end - row + ROWS - 1) / ROWS};
    spread(&t);
    return t;
}

INLINE int next_tile(Tile *t)
{
    t->row += t->rows;
    if (++t->index == t->count) return 0;
    spread(t);
    return 1;
}

/* Items are claimed one ahead, so that a worker knows what to fetch. */
#define FOR_EACH_TILE(t, panels, rows) \
    for (int item_ = take(w), after_, total_ = (panels) * chunks_of(rows); \
         item_ < total_ && (after_ = take(w), 1); item_ = after_) \
        for (Tile t = first_tile(item_, after_, rows, panels), *more_ = &t; more_; more_ = next_tile(&t) ? &t : NULL)

/* The rows of a tile times one panel of a linear, into out[rows][stride]. */
INLINE void multiply(const Shared *s, const Linear *l, const float *rows, const Tile *t, int panel, int next, float *out,
                     size_t stride)
{
    size_t depth = l->depth, at = t->row * depth, from = panel * depth * COLUMNS, then = next * depth * COLUMNS;
    int int8 = s->model.kind == INT8, width = int8 ? 1 : 2, rounds = l->depth / (int8 ? 4 : 2);
    const char *b = (const char *)l->panels + from * width, *following = (const char *)l->panels + then * width;
    Fetch ahead = fetch_for(b, following, rounds, t->index, t->count);
    if (int8) {
        multiply_int8(t->rows, s->narrow + at, depth, (const int8_t *)b, rounds, s->row_scale + t->row,
                      l->scales + panel * COLUMNS, l->offsets + panel * COLUMNS, ahead, out, stride);
    } else if (s->model.kind == DOT) {
        multiply_dot(t->rows, (const bf16 *)s->narrow + at, depth, (const bf16 *)b, rounds, ahead, out, stride);
    } else {
        const bf16 *one = (const bf16 *)b;
        multiply_fma(t->rows, rows + at, depth, &one, 1, rounds, ahead, out, stride);
    }
}

/* out = rows * weights */
static void project(Worker *w, const Linear *l, const float *rows, int count, float *out)
{
    prepare(w, rows, count, l->depth);
    FOR_EACH_TILE(t, panels_of(l), count)
        multiply(w->shared, l, rows, &t, t.panel, t.next, out + (size_t)t.row * l->columns + t.panel * COLUMNS, l->columns);
    end_phase(w);
}

/* x += rows * weights */
static void project_onto(Worker *w, const Linear *l, const float *rows, int count, float *x)
{
    prepare(w, rows, count, l->depth);
    FOR_EACH_TILE(t, panels_of(l), count) {
        float tile[ROWS][COLUMNS] __attribute__((aligned(64)));
        multiply(w->shared, l, rows, &t, t.panel, t.next, tile[0], COLUMNS);
        for (int m = 0; m < t.rows; m++) {
            float *to = x + (size_t)(t.row + m) * l->columns + t.panel * COLUMNS;
            for (int c = 0; c < COLUMNS; c++) to[c] += tile[m][c];
        }
    }
    end_phase(w);
}

/* out = silu(rows * gate) * (rows * up) */
static void project_gated(Worker *w, const Linear *l, const float *rows, int count, float *out)
{
    int inner = l->columns / 2;
    prepare(w, rows, count, l->depth);
    FOR_EACH_TILE(t, inner / COLUMNS, count) {
        float gate[ROWS][COLUMNS] __attribute__((aligned(64))), up[ROWS][COLUMNS] __attribute__((aligned(64)));
        int alone = t.count == 1;
        multiply(w->shared, l, rows, &t, 2 * t.panel, alone ? 2 * t.panel + 1 : 2 * t.next, gate[0], COLUMNS);
        multiply(w->shared, l, rows, &t, 2 * t.panel + 1, alone ? 2 * t.next : 2 * t.next + 1, up[0], COLUMNS);
        for (int m = 0; m < t.rows; m++)
            for (int c = 0; c < COLUMNS; c += 16) {
                __m512 g = _mm512_load_ps(gate[m] + c), one = _mm512_set1_ps(1.0f);
                __m512 e = exponential(_mm512_sub_ps(_mm512_setzero_ps(), g));
                __m512 silu = _mm512_div_ps(g, _mm512_add_ps(one, e));
                _mm512_storeu_ps(out + (size_t)(t.row + m) * inner + t.panel * COLUMNS + c,
                                 _mm512_mul_ps(silu, _mm512_load_ps(up[m] + c)));
            }
    }
    end_phase(w);
}

static void normalize(Worker *w, const float *weight)
{
    Shared *s = w->shared;
    int size = s->model.hidden;
    FOR_EACH(r, s->step->rows)
        rms_norm(s->x + (size_t)r * size, weight, s->model.epsilon, size, s->normed + (size_t)r * size);
    end_phase(w);
}

/* --- attention -------------------------------------------------------------------------------------------------------------- */

INLINE size_t page_at(const Model *m, int page, int head) { return ((size_t)page * m->kv_heads + head) * PAGE * m->head_size; }

/* Turn the two halves of one head by its position's angles. */
static void rotate(float *head, const float *cosine, const float *sine, int half)
{
    for (int i = 0; i < half; i++) {
        float a = head[i], b = head[i + half];
        head[i] = a * cosine[i] - b * sine[i];
        head[i + half] = b * cosine[i] + a * sine[i];
    }
}

static void write_key(bf16 *page, const float *head, int token, int size)
{
    for (int d = 0; d < size; d += 2) {
        page[d * PAGE + token * 2] = narrow(head[d]);
        page[d * PAGE + token * 2 + 1] = narrow(head[d + 1]);
    }
}

static void write_value(bf16 *page, const float *head, int token, int size)
{
    bf16 *to = page + token / 2 * 2 * COLUMNS + token % 2;
    for (int d = 0; d < size; d++) to[d / COLUMNS * PAGE * COLUMNS + d % COLUMNS * 2] = narrow(head[d]);
}

/* The page's places behind its last token are multiplied by a zero probability, so they must be numbers. */
static void clear_behind(bf16 *page, int token, int size)
{
    for (int t = token + 1; t < PAGE; t++) {
        bf16 *to = page + t / 2 * 2 * COLUMNS + t % 2;
        for (int d = 0; d < size; d++) to[d / COLUMNS * PAGE * COLUMNS + d % COLUMNS * 2] = 0;
    }
}

/* Bias, norms of heads, positions; then the row's keys and values go into the cache. */
static void enter(Worker *w, const Layer *l)
{
    Shared *s = w->shared;
    const Model *m = &s->model;
    const Step *step = s->step;
    int size = m->head_size, half = size / 2, width = (m->heads + 2 * m->kv_heads) * size;
    FOR_EACH(r, step->rows) {
        const Span *span = &step->span[s->row_span[r]];
        float *row = s->qkv + (size_t)r * width, *key = row + m->heads * size, *value = key + m->kv_heads * size;
        int position = span->start + r - span->first, token = position % PAGE;
        int page = step->pages[span->pages_at + position / PAGE];
        const float *cosine = m->cosine + (size_t)position * half, *sine = m->sine + (size_t)position * half;
        if (l->qkv_bias) for (int i = 0; i < width; i++) row[i] += l->qkv_bias[i];
        for (int h = 0; h < m->heads; h++) {
            if (l->query_norm) rms_norm(row + h * size, l->query_norm, m->epsilon, size, row + h * size);
            rotate(row + h * size, cosine, sine, half);
        }
        for (int h = 0; h < m->kv_heads; h++, key += size, value += size) {
            bf16 *values = l->values + page_at(m, page, h);
            if (l->key_norm) rms_norm(key, l->key_norm, m->epsilon, size, key);
            rotate(key, cosine, sine, half);
            write_key(l->keys + page_at(m, page, h), key, token, size);
            if (r == span->first + span->size - 1 && (token == 0 || span->size > 1)) clear_behind(values, token, size);
            write_value(values, value, token, size);
        }
    }
    end_phase(w);
}

/* Scores of one query row over [low, high) to probabilities; everything else in [0, width) becomes zero. */
static void softmax(float *scores, int low, int high, int width)
{
    const __m512 least = _mm512_set1_ps(-1e30f);
    __m512 largest = least, sum = _mm512_setzero_ps();
    for (int t = low & ~15; t < high; t += 16) {
        __mmask16 seen = (__mmask16)((high - t < 16 ? (1 << (high - t)) - 1 : 0xffff) & (low > t ? 0xffff << (low - t) : 0xffff));
        __m512 v = _mm512_mask_loadu_ps(least, seen, scores + t);
        _mm512_storeu_ps(scores + t, v);
        largest = _mm512_max_ps(largest, v);
    }
    __m512 top = _mm512_set1_ps(_mm512_reduce_max_ps(largest));
    for (int t = 0; t < (low & ~15); t += 16) _mm512_storeu_ps(scores + t, _mm512_setzero_ps());
    for (int t = low & ~15; t < high; t += 16) {
        __m512 v = _mm512_loadu_ps(scores + t);
        __m512 e = _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(v, least, _CMP_NEQ_UQ), exponential(_mm512_sub_ps(v, top)));
        _mm512_storeu_ps(scores + t, e);
        sum = _mm512_add_ps(sum, e);
    }
    for (int t = (high + 15) & ~15; t < width; t += 16) _mm512_storeu_ps(scores + t, _mm512_setzero_ps());
    __m512 part = _mm512_set1_ps(1.0f / _mm512_reduce_add_ps(sum));
    for (int t = low & ~15; t < high; t += 16) _mm512_storeu_ps(scores + t, _mm512_mul_ps(_mm512_loadu_ps(scores + t), part));
}

/* Some query tokens of one request, and the heads that share one head of keys and values. */
static void attend(Worker *w, const Layer *l, const Item *item)
{
    Shared *s = w->shared;
    const Model *m = &s->model;
    const Span *span = &s->step->span[item->span];
    const int32_t *pages = s->step->pages + span->pages_at;
    int size = m->head_size, group = m->heads / m->kv_heads, width = (m->heads + 2 * m->kv_heads) * size;
    int rows = (item->to - item->from) * group, stop = span->start + item->to;
    int low = l->window ? span->start + item->from - (int)l->window + 1 : 0;
    int first = low > 0 ? low / PAGE : 0, count = (stop + PAGE - 1) / PAGE - first, shift = first * PAGE;
    size_t stride = (size_t)count * PAGE;
    __m512 scaling = _mm512_set1_ps(m->scaling);
    const Fetch nothing = {(const char *)w->queries, (const char *)w->queries, -1, 0};

    for (int r = 0; r < rows; r++) {
        int token = item->from + r / group, head = item->head * group + r % group;
        const float *q = s->qkv + (size_t)(span->first + token) * width + head * size;
        for (int d = 0; d < size; d += 16)
            _mm512_storeu_ps(w->queries + r * size + d, _mm512_mul_ps(_mm512_loadu_ps(q + d), scaling));
    }
    for (int p = 0; p < count; p++) {
        const bf16 *panel = l->keys + page_at(m, pages[first + p], item->head);
        for (int r = 0, n; r < rows && (n = rows - r < ROWS ? rows - r : ROWS); r += n)
            multiply_fma(n, w->queries + r * size, size, &panel, 1, size / 2, nothing, w->scores + r * stride + p * PAGE, stride);
    }
    for (int r = 0; r < rows; r++) {
        int position = span->start + item->from + r / group, from = l->window ? position - (int)l->window + 1 - shift : 0;
        softmax(w->scores + r * stride, from > 0 ? from : 0, position + 1 - shift, (int)stride);
    }
    for (int d = 0; d < size; d += COLUMNS) {
        for (int p = 0; p < count; p++) w->panels[p] = l->values + page_at(m, pages[first + p], item->head) + d * PAGE;
        for (int r = 0, n; r < rows && (n = rows - r < ROWS ? rows - r : ROWS); r += n)
            multiply_fma(n, w->scores + r * stride, stride, w->panels, count, PAGE / 2, nothing, w->answers + r * size + d, size);
    }
    for (int r = 0; r < rows; r++) {
        int token = item->from + r / group, head = item->head * group + r % group;
        memcpy(s->wide + ((size_t)(span->first + token) * m->heads + head) * size, w->answers + r * size, size * sizeof(float));
    }
}

/* --- the step --------------------------------------------------------------------------------------------------------------- */

static void embed(Worker *w)
{
    Shared *s = w->shared;
    int size = s->model.hidden;
    FOR_EACH(r, s->step->rows) {
        int id = s->step->ids[r];
        float *x = s->x + (size_t)r * size;
        if (s->model.embedding) {
            const bf16 *from = s->model.embedding + (size_t)id * size;
            for (int i = 0; i < size; i++) x[i] = widen(from[i]);
            continue;
        }
        const bf16 *from = (const bf16 *)s->model.head.panels + (size_t)(id / COLUMNS) * size * COLUMNS + id % COLUMNS * 2;
        for (int i = 0; i < size; i += 2, from += 2 * COLUMNS) x[i] = widen(from[0]), x[i + 1] = widen(from[1]);
    }
    end_phase(w);
}

static void remember_best(Worker *w, int sample, const float *logits, int columns, int first)
{
    for (int c = 0; c < columns; c += 16) {
        __mmask16 real = columns - c < 16 ? (__mmask16)((1 << (columns - c)) - 1) : 0xffff;
        __m512 v = _mm512_mask_loadu_ps(_mm512_set1_ps(-__builtin_inff()), real, logits + c);
        float top = _mm512_reduce_max_ps(v);
        __mmask16 at = _mm512_mask_cmp_ps_mask(real, v, _mm512_set1_ps(top), _CMP_EQ_OQ);
        if (!at) continue;
        int id = first + c + __builtin_ctz(at);
        /* Panels come in any order; of equal logits the lowest id wins. */
        if (top > w->best_value[sample] || (top == w->best_value[sample] && (w->best_id[sample] < 0 || id < w->best_id[sample]))) {
            w->best_value[sample] = top;
            w->best_id[sample] = id;
        }
    }
}

static void finish(Worker *w)
{
    Shared *s = w->shared;
    const Model *m = &s->model;
    const Step *step = s->step;
    int count = step->samples;
    FOR_EACH(i, count)
        rms_norm(s->x + (size_t)step->sample_rows[i] * m->hidden, m->norm, m->epsilon, m->hidden, s->normed + (size_t)i * m->hidden);
    end_phase(w);
    for (int i = 0; i < count; i++) w->best_value[i] = -__builtin_inff(), w->best_id[i] = -1;
    prepare(w, s->normed, count, m->hidden);
    FOR_EACH_TILE(t, panels_of(&m->head), count) {
        int first = t.panel * COLUMNS, columns = m->vocabulary - first < COLUMNS ? m->vocabulary - first : COLUMNS;
        float tile[ROWS][COLUMNS] __attribute__((aligned(64)));
        multiply(s, &m->head, s->normed, &t, t.panel, t.next, tile[0], COLUMNS);
        for (int k = 0; k < t.rows; k++) {
            remember_best(w, t.row + k, tile[k], columns, first);
            if (step->logits)
                memcpy(step->logits + (size_t)(t.row + k) * m->vocabulary + first, tile[k], columns * sizeof(float));
        }
    }
    end_phase(w);
}

static void compute(Worker *w)
{
    Shared *s = w->shared;
    const Model *m = &s->model;
    int rows = s->step->rows;
    w->phase = 0;
    embed(w);
    for (int i = 0; i < m->layers; i++) {
        const Layer *l = &m->layer[i];
        normalize(w, l->attention_norm);
        project(w, &l->qkv, s->normed, rows, s->qkv);
        enter(w, l);
        FOR_EACH(k, s->item_count) attend(w, l, &s->items[k]);
        end_phase(w);
        project_onto(w, &l->out, s->wide, rows, s->x);
        normalize(w, l->mlp_norm);
        project_gated(w, &l->gate_up, s->normed, rows, s->wide);
        project_onto(w, &l->down, s->wide, rows, s->x);
    }
    finish(w);
}

static void *work(void *argument)
{
    Worker *w = argument;
    Shared *s = w->shared;
    for (long seen = 0;;) {
        pthread_mutex_lock(&s->lock);
        while (s->round == seen && !s->ending) pthread_cond_wait(&s->wake, &s->lock);
        seen = s->round;
        int ending = s->ending;
        pthread_mutex_unlock(&s->lock);
        if (ending) return NULL;
        compute(w);
    }
}

/* Long rows first, or the last item keeps everybody waiting. Spans with prompts are the last ones. Returns 0 without memory. */
static int list_items(Shared *s, const Step *step)
{
    int group = s->model.heads / s->model.kv_heads, tokens = QUERY_ROWS / group > 0 ? QUERY_ROWS / group : 1;
    int needed = 0;
    for (int i = 0; i < step->spans; i++) needed += (step->span[i].size + tokens - 1) / tokens * s->model.kv_heads;
    if (needed > s->item_room) {
        Item *items = realloc(s->items, needed * sizeof(Item));
        if (!items) return 0;
        s->items = items;
        s->item_room = needed;
    }
    s->item_count = 0;
    for (int i = step->spans - 1; i >= 0; i--) {
        int size = step->span[i].size;
        for (int r = 0; r < size; r++) s->row_span[step->span[i].first + r] = i;
        for (int from = (size - 1) / tokens * tokens; from >= 0; from -= tokens)
            for (int h = 0; h < s->model.kv_heads; h++)
                s->items[s->item_count++] = (Item){i, h, from, from + tokens < size ? from + tokens : size};
    }
    return 1;
}

/* Room for scores over the longest context so far. Returns 0 without memory. */
static int make_room(Shared *s, const Step *step)
{
    int context = 0, group = s->model.heads / s->model.kv_heads, rows = group > QUERY_ROWS ? group : QUERY_ROWS;
    for (int i = 0; i < step->spans; i++) {
        int stop = step->span[i].start + step->span[i].size;
        if (stop > context) context = stop;
    }
    if (context <= s->context) return 1;
    context = (context + 1023) / 1024 * 1024;
    for (int t = 0; t < s->threads; t++) {
        Worker *w = &s->workers[t];
        free(w->scores);
        free(w->panels);
        w->scores = aligned_alloc(64, sizeof(float) * rows * context);
        w->panels = malloc(sizeof(bf16 *) * context / PAGE);
        if (!w->scores || !w->panels) {
            s->context = 0;
            return 0;
        }
    }
    s->context = context;
    return 1;
}

/* --- what Python calls ---------------------------------------------------------------------------------------------------- */

/* [rows of weights][depth] bfloat16 to panels; `rows` is filled up to a multiple of 32 with zeros. */
void tokenpool_pack(const bf16 *weights, int32_t rows, int32_t depth, bf16 *panels)
{
    for (int n = 0; n < (rows + COLUMNS - 1) / COLUMNS * COLUMNS; n++) {
        bf16 *to = panels + (size_t)n / COLUMNS * depth * COLUMNS + n % COLUMNS * 2;
        for (int k = 0; k < depth; k += 2, to += 2 * COLUMNS) {
            to[0] = n < rows ? weights[(size_t)n * depth + k] : 0;
            to[1] = n < rows ? weights[(size_t)n * depth + k + 1] : 0;
        }
    }
}

/* The same to int8 panels, each row of weights (a column of the panels) by its own scale. */
void tokenpool_pack_int8(const bf16 *weights, int32_t rows, int32_t depth, int8_t *panels, float *scales, int32_t *offsets)
{
    for (int n = 0; n < (rows + COLUMNS - 1) / COLUMNS * COLUMNS; n++) {
        const bf16 *from = weights + (size_t)n * depth;
        int8_t *to = panels + (size_t)n / COLUMNS * depth * COLUMNS + n % COLUMNS * 4;
        float largest = 1e-12f;
        int32_t sum = 0;
        for (int k = 0; n < rows && k < depth; k++) {
            float size = __builtin_fabsf(widen(from[k]));
            if (size > largest) largest = size;
        }
        scales[n] = largest / 127;
        for (int k = 0; k < depth; k++) {
            int q = n < rows ? (int)__builtin_rintf(widen(from[k]) / scales[n]) : 0;
            to[k / 4 * 4 * COLUMNS + k % 4] = (int8_t)q;
            sum += q;
        }
        offsets[n] = 128 * sum;
    }
}

void tokenpool_close(Shared *s)
{
    pthread_mutex_lock(&s->lock);
    s->ending = 1;
    pthread_cond_broadcast(&s->wake);
    pthread_mutex_unlock(&s->lock);
    for (int t = 1; t < s->threads; t++) if (s->workers[t].thread) pthread_join(s->workers[t].thread, NULL);
    for (int t = 0; t < s->threads; t++) {
        Worker *w = &s->workers[t];
        free(w->scores), free(w->queries), free(w->answers), free(w->panels), free(w->best_value), free(w->best_id);
    }
    free(s->workers), free(s->row_span), free(s->x), free(s->normed), free(s->qkv), free(s->wide), free(s->narrow);
    free(s->row_scale), free(s->items), free(s->next);
    pthread_mutex_destroy(&s->lock);
    pthread_cond_destroy(&s->wake);
    free(s);
}

static void *room(size_t bytes) { return aligned_alloc(64, (bytes + 63) / 64 * 64 + 64); }

/* Worker threads and room for steps of up to max_rows rows. Null without memory or threads. The model is borrowed. */
Shared *tokenpool_open(const Model *model, int32_t threads, int32_t max_rows)
{
    Shared *s = calloc(1, sizeof(Shared));
    if (!s) return NULL;
    const Model *m = &s->model;
    s->model = *model;
    s->threads = threads;
    s->max_rows = max_rows;
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->wake, NULL);
    int queries = m->heads * m->head_size, group = m->heads / m->kv_heads, rows = group > QUERY_ROWS ? group : QUERY_ROWS;
    int wide = queries > m->inner ? queries : m->inner, widest = wide > m->hidden ? wide : m->hidden;
    s->phases = m->layers * 13 + 8;
    s->workers = calloc(threads, sizeof(Worker));
    s->row_span = room(sizeof(int32_t) * max_rows);
    s->x = room(sizeof(float) * max_rows * m->hidden);
    s->normed = room(sizeof(float) * max_rows * m->hidden);
    s->qkv = room(sizeof(float) * max_rows * (queries + 2 * m->kv_heads * m->head_size));
    s->wide = room(sizeof(float) * max_rows * wide);
    s->narrow = room(sizeof(bf16) * max_rows * widest);
    s->row_scale = room(sizeof(float) * max_rows);
    s->next = room(sizeof(atomic_int) * 16 * s->phases);
    if (!s->workers || !s->row_span || !s->x || !s->normed || !s->qkv || !s->wide || !s->narrow || !s->row_scale || !s->next) {
        if (!s->workers) s->threads = 0;
        return tokenpool_close(s), NULL;
    }
    for (int t = 0; t < threads; t++) {
        Worker *w = &s->workers[t];
        *w = (Worker){.shared = s, .index = t};
        w->queries = room(sizeof(float) * rows * m->head_size);
        w->answers = room(sizeof(float) * rows * m->head_size);
        w->best_value = room(sizeof(float) * max_rows);
        w->best_id = room(sizeof(int32_t) * max_rows);
        int made = w->queries && w->answers && w->best_value && w->best_id;
        if (!made || (t > 0 && pthread_create(&w->thread, NULL, work, w))) return tokenpool_close(s), NULL;
    }
    return s;
}

/* Compute one step. Returns 0, or -1 without memory. */
int32_t tokenpool_step(Shared *s, const Step *step)
{
    if (!list_items(s, step) || !make_room(s, step)) return -1;
    for (int p = 0; p < s->phases; p++) atomic_store_explicit(&s->next[p * 16], 0, memory_order_relaxed);
    s->step = step;
    if (s->threads > 1) {
        pthread_mutex_lock(&s->lock);
        s->round++;
        pthread_cond_broadcast(&s->wake);
        pthread_mutex_unlock(&s->lock);
    }
    compute(&s->workers[0]);
    for (int i = 0; i < step->samples; i++) {
        float top = -__builtin_inff();
        step->best[i] = -1;
        for (int t = 0; t < s->threads; t++) {
            const Worker *w = &s->workers[t];
            if (w->best_id[i] < 0 || w->best_value[i] < top) continue;
            if (w->best_value[i] > top || step->best[i] < 0 || w->best_id[i] < step->best[i]) step->best[i] = w->best_id[i];
            top = w->best_value[i];
        }
    }
    return 0;
}
