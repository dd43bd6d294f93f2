sluice: .*draft: mtp: .* has no MTP layer.*
