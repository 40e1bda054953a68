# ruff: noqa
# mypy: ignore-errors
"""TEMPORARY: decode_rocketmq in Python."""
import struct, zlib
from wireproto._codec import ColumnsBuilder, Columns
from wireproto.compression import decompress
from wireproto.errors import ChecksumMismatch, Malformed
from . import record
CODEC={0:"zlib",0x300:"zlib",0x100:"lz4",0x200:"zstd"}
def decode_rocketmq(bodies, *, topic, partition, start, limit=64<<20, check_crc=True):
    b=ColumnsBuilder("offset"); facts={k:[] for k in ("commit_log_offset","reconsume_times","store_timestamp","queue_id","unique_id","real_topic","origin_id","topic")}
    nxt=start
    for body in ([bodies] if isinstance(bodies,(bytes,memoryview)) else bodies):
        body=bytes(body); at=0
        while at<len(body):
            total,magic,crc,qid,flag,qoff,phys,sysf,born=struct.unpack_from('>iIiiiqqiq',body,at)
            p=at+48+8
            p=at+4+4+4+4+4+8+8+4+8
            p+=20 if sysf&0x10 else 8
            store,=struct.unpack_from('>q',body,p); p+=8
            p+=20 if sysf&0x20 else 8
            rec,prep,bl=struct.unpack_from('>iqi',body,p); p+=16
            val=body[p:p+bl]; p+=bl
            if magic==0xDAA320AB: tl,=struct.unpack_from('>h',body,p); p+=2
            else: tl=body[p]; p+=1
            t=body[p:p+tl].decode(); p+=tl
            pl,=struct.unpack_from('>h',body,p); p+=2
            props=dict(x.split('\x01',1) for x in body[p:p+pl].decode().split('\x02') if '\x01' in x)
            at+=total
            if qoff<start: continue
            if check_crc and bl and crc!=zlib.crc32(val)&0x7fffffff: raise ChecksumMismatch("body")
            if sysf&1: val=decompress(CODEC[sysf&0x700],val,limit)
            key=props.get('KEYS')
            b.append(val,key=None if key is None else key.encode(),headers=[(k,v.encode()) for k,v in props.items() if k not in record.RESERVED],timestamp=born,position=qoff)
            for k,v in (("commit_log_offset",phys),("reconsume_times",rec),("store_timestamp",store),("queue_id",qid),("unique_id",props.get('UNIQ_KEY')),("real_topic",props.get('RETRY_TOPIC')),("origin_id",props.get('ORIGIN_MESSAGE_ID')),("topic",t)): facts[k].append(v)
            nxt=qoff+1
    c=b.finish()
    FACTS[id(c)]=facts
    return c,nxt
FACTS={}
def facts_of(c): return FACTS.pop(id(c))
