sluice: --csv: out/b\.csv: No such file or directory
