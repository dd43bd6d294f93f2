sluice: device 'sim': option 'watts=300': there are .*mem=BYTES, bw=GB/s, .*clock=virtual\|real, cut=TIME, fail=alloc:K\|lost:K\|slow:K\|hang:K
