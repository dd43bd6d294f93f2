sluice: .*deepseek_v2: spare: 1: experts on check do not change ranks: --place experts=cpu
