sluice: --group 32: only with weights of type awq
