sluice: .*(-m|--model).*
