import torch,time,sys
sys.path.insert(0,'.')
from model import *
torch.set_num_threads(int(sys.argv[1])); torch.manual_seed(0)
m=Model(); print(sum(p.numel() for p in m.parameters())/1e6)
B,T=16,256
ids=torch.randint(0,4096,(B,T+2))
def step():
    x=m(ids[:,:T]); l=m.loss(x,ids[:,1:T+1],torch.ones(B,T))
    q=B//4
    d=m.draft(x[:q],ids[:q,1:T+1]); l=l+0.3*m.loss(d,ids[:q,2:T+2],torch.ones(q,T))
    l.backward(); return l.item()
step()
t=time.time(); 
for _ in range(3): print(step())
dt=(time.time()-t)/3; print('tok/s',B*T/dt, dt)
