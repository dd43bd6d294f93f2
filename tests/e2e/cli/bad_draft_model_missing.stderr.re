sluice: --draft-model: .*nowhere\.gguf.*
