sluice: --group: only with weights of type awq
