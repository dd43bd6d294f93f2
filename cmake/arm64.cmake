# SPDX-License-Identifier: Apache-2.0
# Cross build for AArch64 with Debian's gcc-aarch64-linux-gnu; tests run under qemu-user. Libraries
# are Debian's of that architecture (docs/bits.md lists the packages), never this machine's.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)
set(ENV{PKG_CONFIG_LIBDIR} /usr/lib/aarch64-linux-gnu/pkgconfig:/usr/share/pkgconfig)
# Without -L: the dynamic loader and libc must both be those of libc6:arm64 (docs/bits.md).
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64)
