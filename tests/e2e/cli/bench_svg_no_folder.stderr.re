sluice: --svg: out/b\.svg: No such file or directory
