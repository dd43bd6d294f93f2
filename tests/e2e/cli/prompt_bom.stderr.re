sluice: utf16: UTF-16: save it as UTF-8
