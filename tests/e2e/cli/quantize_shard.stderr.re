sluice: --shard: only of a folder: out.gguf is one file
