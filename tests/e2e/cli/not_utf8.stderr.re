sluice: .*(UTF-8|utf-8).*
