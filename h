usage: sluice doctor [-m MODEL [--place PART=NAME;...]] [--ranks] [--json]

this machine: CPU, memory, measured limits, advice

options:
  -t, --threads N                 worker threads (0: physical cores)
  -m, --model MODEL               a model: what of it lies on which device
      --ranks                     of the processes that mpirun or srun has started: their machines, and joins of rows
      --device NAME[,NAME]        what computes, as doctor lists it (SL_DEVICE, or the CPU); several share layers
      --split A,B                 by which weights several devices share the layers' blocks (1,1)
      --gpu-layers N|auto|all     0: all on the CPU; more than there are: all on --device (auto); -ngl is the same
      --mem-fraction F            of the memory that is free on a device use so much at most [1]
      --place PART=NAME;...       parts on other devices, as in "experts@0-15=cpu; head=check" (SL_PLACE)
      --experts-device NAME       short for --place experts=NAME, before what --place says
      --cpu-moe                   the same as --experts-device cpu
      --n-cpu-moe N               the same for the experts of the first N layers, or of all
      --override-tensor REGEX=DEVICE,...
                                  --place re:REGEX=DEVICE, of which the first that matches counts; -ot
      --hot-experts N|auto        of experts on the CPU beside a device N in each layer lie on that device too
      --hot-from FILE             those that FILE of --expert-stats says are busiest
      --stream-from N|auto|off    in steps of N tokens experts on the CPU are sent through the device beside it
      --no-matrix-units           cards multiply without their matrix units: the same bits
      --config FILE               options from a JSON file {"name": value}
  -q, --quiet                     no progress, no closing line
  -v, --verbose                   explain what happens
      --json                      stdout is JSON

example:
  sluice doctor
