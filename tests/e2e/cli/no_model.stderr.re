sluice: .*not-there\.gguf.*
