/* SPDX-License-Identifier: Apache-2.0 */
/* Rooms: io. Property: any bytes either open as safetensors, and then the tensors tile the data
 * exactly and can be read, or are refused with a text; nothing is leaked. */
#include "fuzz_io.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size >= 4 && memcmp(data, "GGUF", 4) == 0) return 0;
    io_model *m = fuzz_open("fuzz.safetensors", data, size);
    if (!m) return 0;
    uint64_t total = 0, head = 0;
    for (int i = 0; i < 8; i++)
        head |= (uint64_t)data[i] << (8 * i);
    for (int i = 0; i < io_n_tensor(m); i++)
        total += io_tensor(m, i)->n_bytes;
    if (8 + head + total != size) __builtin_trap();
    fuzz_tensors(m, data, size);
    io_close(m);
    return 0;
}
